/* Selected agents of the list. The selection outlives the refreshes of the list; "all matching" is the filter itself. */

import { formatCount } from "./page.js";

const bar = document.getElementById("selection");
const total = Number(bar.dataset.total);
const count = document.getElementById("selected-count");
const matching = document.getElementById("select-matching");
const clear = document.getElementById("clear-selection");
const selected = new Set();
let isEverything = false;
let lastBox = null;

function boxes() {
  return [...document.querySelectorAll("#rows input[name=agent]")];
}

function paint() {
  const shown = boxes();
  for (const box of shown) {
    box.checked = isEverything || selected.has(box.value);
    box.disabled = isEverything;
  }
  const page = document.getElementById("select-page");
  if (page !== null) {
    page.checked = shown.length > 0 && shown.every((box) => box.checked);
    page.indeterminate = !page.checked && shown.some((box) => box.checked);
  }
  const n = isEverything ? total : selected.size;
  count.textContent = n === 0 ? "Select agents" : `${formatCount(n)} selected`;
  matching.hidden = isEverything || n === 0 || n >= total;
  clear.hidden = n === 0;
  for (const button of bar.querySelectorAll("button[type=submit]")) button.disabled = n === 0;
  for (const field of bar.querySelectorAll("[data-filter]")) field.disabled = !isEverything;
  bar.classList.toggle("has-selection", n > 0);
  writeFields(shown);
}

/** Keep hidden fields for selected agents that the page does not show. */
function writeFields(shown) {
  for (const old of bar.querySelectorAll("input[data-selected]")) old.remove();
  if (isEverything) return;
  const visible = new Set(shown.map((box) => box.value));
  for (const id of selected) {
    if (visible.has(id)) continue;
    const field = document.createElement("input");
    Object.assign(field, { type: "hidden", name: "agent", value: id });
    field.dataset.selected = "";
    bar.append(field);
  }
}

function setBox(box, isChecked) {
  if (isChecked) selected.add(box.value);
  else selected.delete(box.value);
}

document.addEventListener("click", (event) => {
  const box = event.target.closest("#rows input[name=agent], #select-page");
  if (box === null) return;
  if (box.id === "select-page") {
    isEverything = false;
    for (const other of boxes()) setBox(other, box.checked);
  } else {
    const all = boxes();
    const start = event.shiftKey && lastBox !== null ? all.findIndex((other) => other.value === lastBox) : -1;
    const end = all.indexOf(box);
    const range = start < 0 ? [box] : all.slice(Math.min(start, end), Math.max(start, end) + 1);
    for (const other of range) setBox(other, box.checked);
    lastBox = box.value;
  }
  paint();
});
matching.addEventListener("click", () => {
  isEverything = true;
  paint();
});
clear.addEventListener("click", () => {
  isEverything = false;
  selected.clear();
  paint();
});
document.addEventListener("refreshed", paint);
// Browsers restore the state of boxes when a page is shown again.
for (const box of boxes()) if (box.checked) selected.add(box.value);
paint();
