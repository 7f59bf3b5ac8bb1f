/* Selected agents of the list, per cluster and tab. The list itself keeps the selection: refreshes, dialogs, other pages and
   another order do not change it. Another filter keeps the agents that match it, and the bar says how many do not: an
   agent that nobody sees any more must not be part of the next action. The selection of all matching agents ends with the
   filter. Both end when an action has used them.

   Back, Forward, a reload and a link with a query on an agent's page keep the selection, too. Whoever comes in another way,
   by the main navigation, from another page or by a typed address, begins anew.

   Shift selects ranges: with a click, with Space, and with the arrow keys. */

import { declareKeys } from "./keys.js";
import { formatCount, writeText } from "./page.js";

/** Agents whose ids fit into an address. The ids of more are sent in the body of the request. */
const MOST_IN_ADDRESS = 100;
const STORE = `refloat.selected-agents.${document.body.dataset.cluster}`;
const STEPS = { ArrowDown: 1, ArrowUp: -1 };

const bar = document.getElementById("selection");
const total = Number(bar.dataset.total);
const count = document.getElementById("selected-count");
const elsewhere = document.getElementById("selected-elsewhere");
const matching = document.getElementById("select-matching");
const clear = document.getElementById("clear-selection");
const droppedNote = document.getElementById("selection-dropped");
const filterFields = [...bar.querySelectorAll("[data-filter]")];
const filter = filterFields.map(({ name, value }) => `${name}=${value}`).join("&");

/** Ids of the agents that were selected one by one or by page. */
const selected = new Set();
/** All agents that match the filter are selected. */
let isEverything = false;
/** The console is asked which of the agents match a new filter: until then, the stored selection stays. */
let isMatching = false;
/** Ids of the agents where a range begins, and where the arrow keys have extended it to. */
let rangeStart = null;
let rangeEnd = null;
/** A click by Space has no modifiers in some browsers. */
let isShiftHeld = false;

function boxes() {
  return [...document.querySelectorAll("#rows input[name=agent]")];
}

/** Whether the visitor was on the list, and comes back to it. */
function isReturn() {
  if (performance.getEntriesByType("navigation")[0]?.type !== "navigate") return true;
  if (document.referrer === "") return false;
  const from = new URL(document.referrer);
  if (from.origin !== location.origin) return false;
  return from.pathname === location.pathname || (from.pathname.startsWith(location.pathname) && location.search !== "");
}

function forget() {
  try {
    sessionStorage.removeItem(STORE);
  } catch {
    // Storage is disabled: nothing is kept.
  }
}

function load() {
  selected.clear();
  isEverything = false;
  try {
    const stored = JSON.parse(sessionStorage.getItem(STORE) ?? "{}");
    if (stored.filter !== filter) {
      if (stored.ids !== undefined) keepMatching(stored.ids);
      return;
    }
    for (const id of stored.ids ?? []) selected.add(id);
    isEverything = stored.ids === undefined;
  } catch {
    // Storage is disabled: the selection lasts until the page is left.
  }
}

/** Keep those of the agents that match the filter of this page; on an error none. */
async function keepMatching(ids) {
  isMatching = true;
  const query = new URLSearchParams(filterFields.filter(({ value }) => value !== "").map(({ name, value }) => [name, value]));
  let matches = new Set();
  try {
    const answer = await fetch(`${bar.dataset.ids}?${query}`);
    if (answer.ok) matches = new Set((await answer.json()).ids);
  } catch {
    // The console is unreachable: the next refresh says so.
  }
  const kept = ids.filter((id) => matches.has(id));
  for (const id of kept) selected.add(id);
  isMatching = false;
  change();
  const dropped = ids.length - kept.length;
  if (dropped === 0) return;
  const [verb, rest] = dropped === 1 ? ["does", "is"] : ["do", "are"];
  droppedNote.textContent = `${formatCount(dropped)} of ${formatCount(ids.length)} selected agents ${verb} not match the filter and ${rest} no longer selected.`;
}

function save() {
  if (isMatching) return;
  try {
    if (!isEverything && selected.size === 0) sessionStorage.removeItem(STORE);
    else sessionStorage.setItem(STORE, JSON.stringify(isEverything ? { filter } : { filter, ids: [...selected] }));
  } catch {
    // As above.
  }
}

function paint() {
  const shown = boxes();
  for (const box of shown) {
    box.checked = isEverything || selected.has(box.value);
    box.disabled = isEverything;
  }
  const checked = shown.filter((box) => box.checked);
  const page = document.getElementById("select-page");
  if (page !== null) {
    page.checked = shown.length > 0 && checked.length === shown.length;
    page.indeterminate = !page.checked && checked.length > 0;
  }
  const n = isEverything ? total : selected.size;
  const others = n - checked.length;
  const words = n === 0 ? "Select agents" : `${formatCount(n)} selected${others > 0 ? `, ${formatCount(others)} of them not on this page` : ""}`;
  // A status is read out whenever it is written.
  writeText(count, words);
  matching.hidden = isEverything || n === 0 || checked.length >= total;
  clear.hidden = n === 0;
  for (const button of bar.querySelectorAll("button[type=submit]")) button.disabled = n === 0;
  bar.classList.toggle("has-selection", n > 0);
  bar.classList.toggle("has-no-selection", n === 0);
  writeFields(checked);
}

/** Prepare what the form sends: checked boxes send themselves. */
function writeFields(checked) {
  const shown = new Set(checked.map((box) => box.value));
  const ids = isEverything ? [] : [...selected].filter((id) => !shown.has(id));
  elsewhere.value = ids.join("\n");
  elsewhere.disabled = ids.length === 0;
  for (const field of filterFields) field.disabled = !isEverything;
  const isPost = !isEverything && selected.size > MOST_IN_ADDRESS;
  bar.method = isPost ? "post" : "get";
  for (const field of bar.querySelectorAll("[data-post]")) field.disabled = !isPost;
}

function setBox(box, isChecked) {
  if (isChecked) selected.add(box.value);
  else selected.delete(box.value);
}

function change() {
  droppedNote.textContent = "";
  save();
  paint();
}

function clearSelection() {
  isEverything = false;
  selected.clear();
  change();
}

/** Apply the state of a clicked box; with Shift also to all boxes since the box that was clicked before. */
function select(box, isRange) {
  const all = boxes();
  const start = isRange ? all.findIndex((other) => other.value === rangeStart) : -1;
  const end = all.indexOf(box);
  const range = start < 0 ? [box] : all.slice(Math.min(start, end), Math.max(start, end) + 1);
  for (const other of range) setBox(other, box.checked);
  rangeStart = box.value;
  rangeEnd = null;
}

/** Extend the range from the focused box to the next box, or shorten the range by one box. */
function extend(box, step) {
  const all = boxes();
  const from = all.indexOf(box);
  const next = all[from + step];
  if (next === undefined) return;
  if (rangeEnd !== box.value) {
    rangeStart = box.value;
    setBox(box, true);
  }
  const start = all.findIndex((other) => other.value === rangeStart);
  const isTakenBack = Math.abs(from + step - start) < Math.abs(from - start);
  setBox(isTakenBack ? box : next, !isTakenBack);
  rangeEnd = next.value;
  next.focus();
}

document.addEventListener("click", (event) => {
  const box = event.target.closest("#rows input[name=agent], #select-page");
  if (box === null) return;
  if (box.id === "select-page") {
    isEverything = false;
    for (const other of boxes()) setBox(other, box.checked);
  } else {
    select(box, event.shiftKey || (event.detail === 0 && isShiftHeld));
  }
  change();
});
document.addEventListener("mousedown", (event) => {
  const box = event.target.closest("#rows input[name=agent]");
  if (box === null || !event.shiftKey) return;
  // Shift also selects the text up to here, and a page with selected text is not refreshed.
  event.preventDefault();
  box.focus();
});
declareKeys("Selection of agents, while a box has the focus", [
  ["Space", "Select or deselect the agent"],
  ["Shift ↑ or Shift ↓", "Extend the selection"],
]);
for (const name of ["keydown", "keyup"]) document.addEventListener(name, ({ shiftKey }) => (isShiftHeld = shiftKey), true);
document.addEventListener("keydown", (event) => {
  const step = event.shiftKey ? STEPS[event.key] : undefined;
  const box = event.target.closest("#rows input[name=agent]");
  if (box === null || step === undefined) return;
  event.preventDefault();
  extend(box, step);
  change();
});
matching.addEventListener("click", () => {
  isEverything = true;
  selected.clear();
  change();
});
clear.addEventListener("click", clearSelection);
// The action is done: the next one is about other agents.
document.addEventListener("dialog-done", clearSelection);
bar.addEventListener("submit", ({ submitter }) => {
  if (submitter?.hasAttribute("data-dialog")) return;
  // Another page takes over. The form is sent as it is; only a list that is opened later begins anew.
  selected.clear();
  isEverything = false;
  save();
});
// The main navigation leads to a new list, also from this one. With a modifier it opens another tab.
document.querySelector(".nav a[aria-current=page]")?.addEventListener("click", (event) => {
  if (!event.ctrlKey && !event.metaKey && !event.shiftKey) forget();
});
document.addEventListener("refreshed", paint);
// Browsers may show a page again as it was left, with its scripts.
window.addEventListener("pageshow", () => {
  load();
  paint();
});
if (!isReturn()) forget();
load();
// Boxes that were checked before this script ran; a range may begin at the last one. (The form has autocomplete="off":
// browsers restore no boxes.)
for (const box of boxes()) if (box.checked) select(box, false);
change();
