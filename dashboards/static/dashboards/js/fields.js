/* Fields of every form, also in dialogs.

   .field-wrong       an edit removes the error: it was about the previous value. Not in a form with data-forecast,
                      whose forecast replaces the errors
   data-until-edit    a notice about the submitted values, which an edit removes
   data-current       the stored value of a field, which is marked where it differs
   data-fill          a button that fills in its value; it is pressed while the field has that value. Pages have it
                      disabled: a click before this script runs would do nothing
   data-id-of         an id that is made from the field with this name, until somebody edits the id
   .choice            text typed in a choice selects it, and another choice discards the text */

const TEXT_FIELDS = "input:not([type=radio], [type=checkbox], [type=hidden]), textarea";

/** Remove the error of a field. */
export function clearError(field) {
  if (field === null) return;
  field.classList.remove("field-wrong");
  for (const input of field.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  for (const error of field.querySelectorAll(".error")) {
    for (const input of field.querySelectorAll(`[aria-describedby~="${CSS.escape(error.id)}"]`)) describe(input, error.id, false);
    error.remove();
  }
}

/** Show an error under a field. */
export function showError(field, id, sentence) {
  clearError(field);
  const error = document.createElement("p");
  error.className = "error";
  error.id = id;
  error.textContent = sentence;
  field.classList.add("field-wrong");
  for (const input of field.querySelectorAll("input, select, textarea")) {
    input.setAttribute("aria-invalid", "true");
    describe(input, id, true);
  }
  field.insertBefore(error, field.querySelector(":scope > :is(.field-change, .help)"));
}

/** Mark a field whose value differs from the stored value. Return whether the value differs. */
export function markChange(field, value) {
  const isChanged = sameText(value) !== sameText(field.dataset.current);
  field.classList.toggle("field-changed", isChanged);
  return isChanged;
}

/** Return a text without the line ends and blanks in which browsers differ from the server. */
function sameText(text) {
  return text.replaceAll("\r\n", "\n").trim();
}

/** Mark the changes of a field with buttons for usual values, and the button of its value. */
function markFilled(field) {
  const { value } = field.querySelector("input, select, textarea");
  markChange(field, value);
  for (const button of field.querySelectorAll("[data-fill]")) button.setAttribute("aria-pressed", String(sameText(button.dataset.fill) === sameText(value)));
}

/** Add an id to aria-describedby of an input, or remove it. */
function describe(input, id, isDescribed) {
  const ids = (input.getAttribute("aria-describedby") ?? "").split(/\s+/).filter((other) => other !== "" && other !== id);
  if (isDescribed) ids.push(id);
  if (ids.length > 0) input.setAttribute("aria-describedby", ids.join(" "));
  else input.removeAttribute("aria-describedby");
}

/** Keep the text of a choice and its radio button consistent. */
function selectChoice(input) {
  const choice = input.closest(".choice");
  if (choice === null) return;
  if (input.type !== "radio") {
    const radio = choice.querySelector("input[type=radio]");
    if (radio !== null && input.value.trim() !== "") radio.checked = true;
    return;
  }
  for (const text of choice.closest(".choices")?.querySelectorAll(TEXT_FIELDS) ?? []) {
    if (choice.contains(text)) continue;
    text.value = "";
    clearError(text.closest(".field-wrong"));
  }
}

/** Make the id that belongs to a name field, as long as it is the one that was made from the name before. */
function suggestId(target) {
  const input = target.form.querySelector(`[data-id-of="${CSS.escape(target.name)}"]`);
  if (input === null || input.value !== (input.dataset.suggested ?? "")) return;
  const text = target.value.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  input.value = text.replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, input.maxLength).replace(/-$/, "");
  input.dataset.suggested = input.value;
  clearError(input.closest(".field-wrong"));
}

document.addEventListener("input", ({ target }) => {
  const form = target.form ?? null;
  if (form === null) return;
  suggestId(target);
  if (form.dataset.forecast === undefined) clearError(target.closest(".field-wrong"));
  for (const notice of (target.closest("dialog") ?? document).querySelectorAll("[data-until-edit]")) notice.remove();
  selectChoice(target);
  const field = form.dataset.forecast === undefined ? target.closest("[data-current]") : null;
  if (field !== null) markFilled(field);
});

/** Enable the buttons of a part of the page that need this script. */
export function enableFillButtons(part) {
  for (const button of part.querySelectorAll("[data-fill]")) button.disabled = false;
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-fill]");
  if (button === null) return;
  const input = button.closest(".field").querySelector("input, textarea");
  input.value = button.dataset.fill;
  if (input.rows) input.rows = Math.max(2, input.value.split("\n").length);
  input.dispatchEvent(new Event("input", { bubbles: true }));
});

enableFillButtons(document);
document.addEventListener("refreshed", () => enableFillButtons(document));
