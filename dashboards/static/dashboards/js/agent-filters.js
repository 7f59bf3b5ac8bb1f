// The states in the filter of the list of agents apply at once; the text fields with the button or the Enter key.

const FOCUS_KEY = "refloat-state-filter-focus";
const form = document.querySelector("form.filters");

form.addEventListener("change", (event) => {
  if (event.target.name !== "state") return;
  sessionStorage.setItem(FOCUS_KEY, event.target.value);
  form.requestSubmit();
});

// The page has been loaded again. Keep the keyboard focus on the state that was changed.
const focusedState = sessionStorage.getItem(FOCUS_KEY);
sessionStorage.removeItem(FOCUS_KEY);
if (focusedState !== null) {
  form.querySelector(`input[name=state][value="${CSS.escape(focusedState)}"]`)?.focus({ preventScroll: true });
}
