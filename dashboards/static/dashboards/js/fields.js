/* Fields of every form, also in dialogs.

   .field-wrong       an edit removes the error: it was about the previous value. Not in a form with data-forecast,
                      whose forecast replaces the errors
   data-until-edit    a notice about the submitted values, which an edit removes
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

document.addEventListener("input", ({ target }) => {
  const form = target.form ?? null;
  if (form === null) return;
  if (form.dataset.forecast === undefined) clearError(target.closest(".field-wrong"));
  for (const notice of (target.closest("dialog") ?? document).querySelectorAll("[data-until-edit]")) notice.remove();
  selectChoice(target);
});
