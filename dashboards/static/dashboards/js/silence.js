/* Forms of silences and maintenance windows, on a page or in a dialog. Without this script, the buttons submit the form,
   and the server answers with the form and its sentences.

   data-preview          of a form: where the sentences about its fields come from, for its data-preview-target
   data-suggestions      of a part with fields: where values for condition_value come from
   data-add-condition    the button that Enter in condition_value presses */

import { fetchPage } from "./page.js";

const DELAY_MS = 250;
/** Fields that no preview needs. */
const HIDDEN_FIELDS = new Set(["csrfmiddlewaretoken", "reason", "confirmation", "seen_version"]);

let timer = null;
let requestCount = 0;

/** Return the fields of a form as a query. */
function queryOf(form) {
  return new URLSearchParams([...new FormData(form)].filter(([name]) => !HIDDEN_FIELDS.has(name)));
}

/** Show what the fields of a form would do. */
async function showPreview(form) {
  const target = form.querySelector("[data-preview-target]");
  const number = (requestCount += 1);
  const { preview } = form.dataset;
  try {
    const page = await fetchPage(`${preview}${preview.includes("?") ? "&" : "?"}${queryOf(form)}`);
    if (page === null || number !== requestCount || !target.isConnected) return;
    target.replaceChildren(...[...page.body.childNodes].map((node) => document.importNode(node, true)));
  } catch {
    target.textContent = "The preview could not be loaded.";
  }
}

/** Fill the list of values for the selected field that contain the typed text. */
async function showSuggestions(row) {
  const [field, value] = ["condition_field", "condition_value"].map((name) => row.querySelector(`[name=${name}]`));
  const query = new URLSearchParams({ condition_field: field.value, condition_value: value.value });
  const typed = value.value;
  try {
    const answer = await fetch(`${row.dataset.suggestions}?${query}`);
    if (!answer.ok) return;
    const { suggestions } = await answer.json();
    if (value.value !== typed) return;
    row.querySelector("datalist").replaceChildren(...suggestions.map((suggestion) => new Option(suggestion.label, suggestion.value)));
  } catch {
    // The console does not respond: names can be typed without suggestions.
  }
}

function refreshForm({ target }) {
  const form = target.form ?? null;
  if (form?.dataset.preview === undefined || target.name === "reason" || target.name === "name") return;
  clearTimeout(timer);
  const row = target.closest("[data-suggestions]");
  timer = setTimeout(() => {
    if (row !== null) showSuggestions(row);
    showPreview(form);
  }, DELAY_MS);
}

/** Show the start of a silence, which is in UTC, in the user's time zone. */
function showLocalStart({ target }) {
  if (target.name !== "starts") return;
  const help = target.form.querySelector(`#${CSS.escape(target.id)}_helptext`);
  const at = target.value ? new Date(`${target.value}Z`) : null;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  help.textContent = at === null || Number.isNaN(at.getTime())
    ? "Empty: the silence starts now."
    : `Your local time: ${at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" })} (${zone}).`;
}

document.addEventListener("input", refreshForm);
document.addEventListener("input", showLocalStart);
document.addEventListener("focusin", ({ target }) => {
  if (target.name === "condition_value") showSuggestions(target.closest("[data-suggestions]"));
});
// Enter in the value adds the condition; it does not submit the whole form.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target.name !== "condition_value" || event.target.value.trim() === "") return;
  event.preventDefault();
  event.target.closest("[data-suggestions]").querySelector("[data-add-condition]").click();
}, { capture: true });
