/* Keyboard shortcuts: the list of all keys of a page, and those of every page. docs/reference/keys.md

   A module that handles keys declares them with `declareKeys`, so that ? lists them. Shortcuts of one character do nothing
   while somebody types or a dialog is open, and can be switched off (WCAG 2.1.4). */

import { addMoment } from "./moment.js";

/** Time between g and the next key, ms. */
const SEQUENCE_MS = 1_500;
const KEPT_CHOICE = "refloat.keys";
/** Pages after g: path in the cluster, whether it can show the past, and name. */
const PAGES = {
  f: ["/", true, "Fleet now"],
  m: ["/map/", true, "Map"],
  a: ["/agents/", true, "Agents"],
  i: ["/incidents/", false, "Incidents"],
  h: ["/history/", false, "History"],
  n: ["/networking/", false, "Networking"],
  p: ["/policies/", false, "Policies"],
  c: ["/changes/", false, "Changes"],
  s: ["/silences/", false, "Silences"],
};
const SEARCH_FIELDS = "main :is(input[type=search], [role=combobox])";

/** Keys by title of their part of the page, in the order of their declaration: [keys, action]. */
const declared = new Map();
let dialog = null;
/** When g was pressed; null: it was not. */
let sequenceAt = null;

/**
 * Declare keys of this page. `rows`: [keys, action], for example ["j or k", "Next or previous agent"]: keys of one
 * sequence are separated by spaces, *or* stands between others.
 */
export function declareKeys(title, rows) {
  declared.set(title, rows);
}

/** Return whether keys are text, or choose a value, in an element. */
export function isTyping(target) {
  return target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]") != null;
}

/** Return whether a key event may be a shortcut of one character: nobody types, no dialog is open, they are on. */
export function isShortcut(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return false;
  return areKeysOn() && !isTyping(event.target) && document.querySelector("dialog[open]") === null;
}

function areKeysOn() {
  try {
    return localStorage.getItem(KEPT_CHOICE) !== "off";
  } catch {
    return true;
  }
}

function switchKeys(isOn) {
  try {
    localStorage.setItem(KEPT_CHOICE, isOn ? "on" : "off");
  } catch {
    // Storage is disabled: the keys stay on.
  }
}

function element(tag, className, ...content) {
  const made = document.createElement(tag);
  if (className !== "") made.className = className;
  made.append(...content);
  return made;
}

function describe(keys) {
  return keys.split(" ").flatMap((key) => [key === "or" ? element("span", "quiet", "or") : element("kbd", "", key), " "]);
}

function makeSection(title, rows) {
  const list = element("dl", "keys-list");
  for (const [keys, action] of rows) list.append(element("div", "", element("dt", "", ...describe(keys)), element("dd", "", action)));
  return element("section", "keys-part", element("h3", "", title), list);
}

function frameRows() {
  const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
  return [
    [isMac ? "⌘ K" : "Ctrl K", "Search and actions"],
    ["/", document.querySelector(SEARCH_FIELDS) === null ? "Search and actions" : "Search on this page"],
    ["?", "Show this list"],
    ["Esc", "Close a dialog or a menu"],
  ];
}

/** Show all keys of this page. */
export function showKeys() {
  if (dialog === null) {
    dialog = element("dialog", "dialog keys dialog-wide");
    dialog.id = "keys";
    dialog.setAttribute("aria-labelledby", "keys-title");
    // Shortcuts of the page below are not meant while the dialog is open.
    dialog.addEventListener("keydown", (event) => dialog.open && event.stopPropagation());
    dialog.addEventListener("pointerdown", (event) => event.target === dialog && dialog.close());
    document.body.append(dialog);
  }
  const title = element("h2", "dialog-title", "Keyboard shortcuts");
  title.id = "keys-title";
  const close = element("button", "button", "Close");
  close.autofocus = true;
  const goRows = Object.entries(PAGES).map(([key, [, , name]]) => [`g ${key}`, name]);
  const box = element("input", "");
  box.type = "checkbox";
  box.checked = areKeysOn();
  box.addEventListener("change", () => switchKeys(box.checked));
  const form = element("form", "keys-foot", element("label", "", box, " Shortcuts without Ctrl or Shift are on"), close);
  form.method = "dialog";
  const parts = [...declared].map(([part, rows]) => makeSection(part, rows));
  parts.push(makeSection("Every page", frameRows()), makeSection("Go to", goRows));
  dialog.replaceChildren(element("div", "dialog-head", title), element("div", "dialog-body keys-parts", ...parts), form);
  if (!dialog.open) dialog.showModal();
}

function focusSearch() {
  const field = [...document.querySelectorAll(SEARCH_FIELDS)].find((shown) => shown.offsetParent !== null);
  if (field === undefined) {
    document.getElementById("palette-open")?.click();
    return;
  }
  field.focus();
  field.select?.();
}

function press(event) {
  if (!isShortcut(event)) return;
  const page = sequenceAt !== null && performance.now() - sequenceAt < SEQUENCE_MS ? PAGES[event.key] : undefined;
  sequenceAt = null;
  if (page !== undefined) {
    // The second key means nothing else: a acknowledges on the page of an incident.
    event.preventDefault();
    event.stopImmediatePropagation();
    const url = `${document.body.dataset.prefix}${page[0]}`;
    location.assign(page[1] ? addMoment(url) : url);
  } else if (event.key === "g") sequenceAt = performance.now();
}

/** Keys that a part of the page may use for itself: these come after its own. */
function pressLate(event) {
  if (!isShortcut(event)) return;
  if (event.key === "?") showKeys();
  else if (event.key === "/") focusSearch();
  else return;
  event.preventDefault();
}

document.addEventListener("keydown", press, { capture: true });
document.addEventListener("keydown", pressLate);
document.addEventListener("click", ({ target }) => {
  if (target.closest("[data-show-keys]") === null) return;
  // A button of a menu is hidden with the menu: the dialog gives the focus back to what opens the menu.
  const menu = target.closest("details");
  menu?.removeAttribute("open");
  menu?.querySelector("summary").focus();
  showKeys();
});
