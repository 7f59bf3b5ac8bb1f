/* Applies the colours somebody chose before anything is painted. A classic script in the head, not a module:
   a module would run after the first paint and flash. page.js changes the choice. */

(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("refloat.theme");
  } catch {
    // Storage is switched off: the system's choice it is.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
