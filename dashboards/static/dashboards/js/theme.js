/* Applies the chosen theme before the first paint. A classic script in the head: a module would run after the first
   paint, and the page would flash. page.js changes the choice. */

(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("refloat.theme");
  } catch {
    // Storage is disabled: the system's theme applies.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
