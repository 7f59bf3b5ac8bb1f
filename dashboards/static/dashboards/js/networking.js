/* The editor of the networking config: changed fields are marked, and the forecast follows what is edited. Without it, the
   page has the forecast of the last request, and the preview shows the rest. */

import { fetchPage, swap } from "./page.js";

const WAIT_MS = 300;
const PARTS = ["tunnel-forecast", "closing-forecast", "config-changes", "yaml-diff"];

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
  const changed = value !== field.dataset.current;
  field.classList.toggle("field-changed", changed);
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

function markParts(isBusy) {
  for (const id of PARTS) document.getElementById(id)?.toggleAttribute("aria-busy", isBusy);
}

async function refreshForecast() {
  const data = new FormData(form);
  data.delete("csrfmiddlewaretoken");
  const query = new URLSearchParams(data).toString();
  if (query === shownQuery) return;
  markParts(true);
  const page = await fetchPage(`${form.dataset.forecast}?${query}`).catch(() => null);
  const current = new FormData(form);
  current.delete("csrfmiddlewaretoken");
  if (query !== new URLSearchParams(current).toString()) return;
  markParts(false);
  if (page === null) return;
  shownQuery = query;
  for (const id of PARTS) {
    const old = document.getElementById(id);
    const fresh = page.getElementById(id);
    if (old !== null && fresh !== null) swap(old, document.importNode(fresh, true));
  }
}

function edited() {
  markFields();
  clearTimeout(timer);
  timer = setTimeout(refreshForecast, WAIT_MS);
}

form.addEventListener("input", edited);
form.addEventListener("click", (event) => {
  const button = event.target.closest("[data-count]");
  if (button === null) return;
  form.elements.agent_connection_count.value = button.dataset.count;
  // The count has no effect in agent mesh.
  const peering = form.querySelector('[name=tunnel_strategy][value="proxy_peering"]');
  if (peering !== null) peering.checked = true;
  edited();
});
form.addEventListener("reset", () => setTimeout(edited));
if (form.querySelector("[data-current]") !== null) markFields();
