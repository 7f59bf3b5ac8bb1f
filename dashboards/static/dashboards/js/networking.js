/* The editor of the networking config: changed and invalid fields are marked, and the forecast follows what is edited.
   Without it, the page has the forecast of the last request, and the preview shows the rest. */

import { clearError, markChange, showError } from "./fields.js";
import { fetchPage, swap } from "./page.js";

const WAIT_MS = 300;
const PARTS = ["tunnel-forecast", "closing-forecast", "config-changes", "yaml-diff", "config-problems"];

const form = document.getElementById("config");
let timer = 0;
let shownQuery = null;

function valueOf(field) {
  const input = field.querySelector("input, select, textarea");
  if (input.type === "radio") return field.querySelector("input:checked")?.value ?? "";
  if (input.type === "checkbox") return input.checked ? "on" : "";
  return input.value.trim();
}

function markField(field) {
  const value = valueOf(field);
  const changed = markChange(field, value);
  const note = field.querySelector(".field-change");
  note.hidden = !changed;
  const isSwitch = field.querySelector("input[type=checkbox]") !== null;
  const text = isSwitch ? (value === "" ? "off" : "on") : value === "" ? "default" : value.replaceAll("_", " ");
  note.querySelector("ins").textContent = text;
}

function markFields() {
  for (const field of form.querySelectorAll("[data-current]")) markField(field);
  for (const button of form.querySelectorAll("[data-count]")) {
    button.setAttribute("aria-pressed", String(form.elements.agent_connection_count.value.trim() === button.dataset.count));
  }
}

/** Mark the invalid fields of the last forecast, and no others. */
function markProblems() {
  const problems = new Map();
  for (const item of document.querySelectorAll("#config-problems [data-field]")) {
    const input = form.querySelector(`[name="${CSS.escape(item.dataset.field)}"]`);
    problems.set(input.closest(".field"), { id: item.dataset.id, sentence: item.textContent });
  }
  for (const field of form.querySelectorAll(".field-wrong")) if (!problems.has(field)) clearError(field);
  for (const [field, { id, sentence }] of problems) {
    // An error that stays is not announced again.
    if (document.getElementById(id)?.textContent !== sentence) showError(field, id, sentence);
  }
}

/** Move the focus to the first invalid field, which may be out of view or collapsed. */
function goToFirstProblem(event) {
  const link = event.target.closest("a[data-first-problem]");
  const input = link === null ? null : document.getElementById(link.hash.slice(1));
  if (input === null) return;
  event.preventDefault();
  for (let part = input.closest("details"); part !== null; part = part.parentElement.closest("details")) part.open = true;
  input.scrollIntoView({ block: "center" });
  input.focus({ preventScroll: true });
}

function markParts(isBusy) {
  for (const id of PARTS) document.getElementById(id)?.toggleAttribute("aria-busy", isBusy);
}

async function refreshForecast() {
  const data = new FormData(form);
  data.delete("csrfmiddlewaretoken");
  const query = new URLSearchParams(data).toString();
  if (query === shownQuery) return markParts(false);
  markParts(true);
  const page = await fetchPage(`${form.dataset.forecast}?${query}`).catch(() => null);
  const current = new FormData(form);
  current.delete("csrfmiddlewaretoken");
  if (query !== new URLSearchParams(current).toString()) return;
  markParts(false);
  if (page === null) {
    for (const field of form.querySelectorAll(".field-wrong")) clearError(field);
    return;
  }
  shownQuery = query;
  for (const id of PARTS) {
    const old = document.getElementById(id);
    const fresh = page.getElementById(id);
    if (old !== null && fresh !== null) swap(old, document.importNode(fresh, true));
  }
  markProblems();
}

function edited() {
  markFields();
  clearTimeout(timer);
  timer = setTimeout(refreshForecast, WAIT_MS);
}

form.addEventListener("input", edited);
form.addEventListener("click", goToFirstProblem);
form.addEventListener("click", (event) => {
  const button = event.target.closest("[data-count]");
  if (button === null) return;
  const input = form.elements.agent_connection_count;
  input.value = button.dataset.count;
  // The count has no effect in agent mesh.
  const peering = form.querySelector('[name=tunnel_strategy][value="proxy_peering"]');
  if (peering !== null) peering.checked = true;
  input.dispatchEvent(new Event("input", { bubbles: true }));
});
form.addEventListener("reset", () => setTimeout(edited));
if (form.querySelector("[data-current]") !== null) markFields();
