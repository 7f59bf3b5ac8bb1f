/* The palette: finds pages, actions and objects of the cluster. A combobox with a listbox in a dialog, after the ARIA
   Authoring Practices: the focus stays in the field, arrow keys move through the options. docs/reference/keys.md */

import "./dialogs.js";
import { pathInCluster } from "./cluster-path.js";
import { addMoment } from "./moment.js";
import { chooseTheme, formatCount, writeText } from "./page.js";
import { forgetRecent, readRecent, remember } from "./palette-recent.js";

/** Time after the last key, ms, until the console is asked. */
const TYPING_MS = 60;

const { prefix } = document.body.dataset;
const dialog = document.getElementById("palette");
const field = document.getElementById("palette-query");
const list = document.getElementById("palette-list");
const status = document.getElementById("palette-status");
const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

/** The options in reading order: { element, entry }. Number of the active one; -1: none. */
let options = [];
let active = -1;
let timer = null;
/** Aborts the request whose answer is not needed any more; null: none is under way. */
let request = null;
/** Enter was pressed before the results of the query arrived: "here", "tab" or null. */
let pendingOpen = null;

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

function addressOf({ url, cluster, has_past: hasPast }) {
  if (cluster !== undefined) return pathInCluster(location, prefix, url.replace(/\/$/, ""));
  return hasPast ? addMoment(url) : url;
}

function makeOption(entry, number) {
  const option = element(entry.theme === undefined ? "a" : "button", "palette-option");
  if (entry.theme === undefined) option.href = addressOf(entry);
  else option.type = "button";
  option.id = `palette-option-${number}`;
  option.setAttribute("role", "option");
  option.setAttribute("aria-selected", "false");
  option.tabIndex = -1;
  if (entry.state !== undefined) {
    option.classList.add(entry.kind === "instance" ? `instance-${entry.state}` : `state-${entry.state}`);
    option.innerHTML = '<svg class="shape" aria-hidden="true"><use></use></svg>';
    option.querySelector("use").setAttribute("href", `#shape-${entry.state}`);
  }
  const label = element("span", "palette-label");
  const name = element("bdi", "", entry.label);
  label.append(name);
  option.append(label);
  if (entry.note) option.append(element("span", "palette-note", entry.note));
  return option;
}

function show(groups) {
  options = [];
  const parts = groups.map(({ kind, label, count, all_url: allUrl, entries }) => {
    const group = element("div", "palette-group");
    group.setAttribute("role", "group");
    const heading = element("div", "palette-heading", label);
    heading.id = `palette-heading-${kind}`;
    group.setAttribute("aria-labelledby", heading.id);
    if (count !== undefined && field.value.trim() !== "") heading.append(" ", element("span", "n", formatCount(count)));
    group.append(heading);
    const listed = entries.map((entry) => ({ kind, ...entry }));
    if (allUrl) listed.push({ kind: "page", label: `Show all ${formatCount(count)} ${label.toLowerCase()}`, url: allUrl });
    for (const entry of listed) {
      const option = makeOption(entry, options.length);
      options.push({ element: option, entry });
      group.append(option);
    }
    return group;
  });
  list.replaceChildren(...parts);
  list.scrollTop = 0;
  activate(options.length > 0 ? 0 : -1);
}

function activate(number) {
  options[active]?.element.setAttribute("aria-selected", "false");
  active = number;
  const option = options[number]?.element;
  if (option === undefined) {
    field.removeAttribute("aria-activedescendant");
    return;
  }
  option.setAttribute("aria-selected", "true");
  field.setAttribute("aria-activedescendant", option.id);
  // The first option comes with the heading of its group.
  (number === 0 ? option.parentElement : option).scrollIntoView({ block: "nearest" });
}

function say(text) {
  writeText(status, text);
}

async function search() {
  clearTimeout(timer);
  timer = null;
  request?.abort();
  const own = new AbortController();
  request = own;
  const query = field.value.trim();
  try {
    const answer = await fetch(`${prefix}/palette.json?q=${encodeURIComponent(query)}`, { headers: { Accept: "application/json" }, signal: own.signal });
    if (answer.redirected) throw new Error("You are signed out. Reload the page to sign in again.");
    if (!answer.ok) throw new Error("The search failed. Try again, or use the navigation.");
    const { groups, notice } = await answer.json();
    if (own.signal.aborted) return;
    const recent = query === "" ? readRecent(prefix) : [];
    show(recent.length > 0 ? [{ kind: "recent", label: "Recent", entries: recent }, ...groups] : groups);
    const count = groups.reduce((sum, group) => sum + group.count, 0);
    const resultText = query === "" ? "" : count === 0 ? "No results. Try part of a name, an ID or a number." : `${formatCount(count)} result${count === 1 ? "" : "s"}`;
    say([resultText, notice].filter((text) => text !== "").join(". "));
    list.dataset.query = query;
  } catch (error) {
    if (own.signal.aborted) return;
    show([]);
    pendingOpen = null;
    say(error instanceof TypeError ? "The console does not respond." : error.message);
  }
  request = null;
  if (pendingOpen !== null) choose(active, pendingOpen);
}

/** Open an option: "here", or in a new "tab". */
function choose(number, place) {
  pendingOpen = null;
  const option = options[number];
  if (option === undefined) return;
  const { entry, element: link } = option;
  remember(prefix, entry);
  const address = link.href;
  if (place === "tab" && address !== undefined) {
    window.open(address, "_blank", "noopener");
    return;
  }
  dialog.close();
  if (entry.theme !== undefined) chooseTheme(entry.theme);
  else if (entry.is_dialog) openInDialog(address, entry.label);
  else location.assign(address);
}

/** Open a page as a link with data-dialog does: js/dialogs.js. */
function openInDialog(address, label) {
  const link = element("a", "", label);
  link.href = address;
  link.dataset.dialog = "";
  link.hidden = true;
  document.body.append(link);
  link.click();
  link.remove();
}

/** Stop the search; a response that is still on its way is ignored. */
function stopSearch() {
  clearTimeout(timer);
  request?.abort();
  [timer, request, pendingOpen] = [null, null, null];
}

/** Open the palette. */
export function openPalette() {
  if (dialog.open) return;
  stopSearch();
  field.value = "";
  show([]);
  say("");
  dialog.showModal();
  field.focus();
  search();
}

function press(event) {
  // Until its next frame, the browser leaves the focus in a closed dialog: the key is meant for the page.
  if (!dialog.open) return;
  // Shortcuts of the page below are not meant while the palette is open.
  event.stopPropagation();
  if (isOpener(event)) {
    event.preventDefault();
    dialog.close();
    return;
  }
  if (event.target !== field || event.isComposing) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const step = event.key === "ArrowDown" ? 1 : -1;
    if (options.length > 0) activate((active + step + options.length) % options.length);
  } else if (event.key === "Enter") {
    event.preventDefault();
    const place = event.ctrlKey || event.metaKey ? "tab" : "here";
    if (timer === null && request === null) choose(active, place);
    else pendingOpen = place;
  }
}

function isOpener(event) {
  return event.key.toLowerCase() === "k" && (isMac ? event.metaKey : event.ctrlKey) && !event.shiftKey && !event.altKey;
}

document.getElementById("palette-open").addEventListener("click", openPalette);
document.getElementById("palette-close").addEventListener("click", () => dialog.close());
if (isMac) document.getElementById("palette-key").textContent = "⌘ K";
document.addEventListener("keydown", (event) => {
  if (!isOpener(event) || document.querySelector("dialog[open]") !== null) return;
  event.preventDefault();
  openPalette();
});
dialog.addEventListener("keydown", press);
// This event comes a moment after the dialog was closed: it may be open again.
dialog.addEventListener("close", () => dialog.open || stopSearch());
dialog.addEventListener("pointerdown", (event) => {
  if (event.target === dialog) dialog.close();
});
field.addEventListener("input", () => {
  pendingOpen = null;
  clearTimeout(timer);
  timer = setTimeout(search, TYPING_MS);
});
list.addEventListener("pointermove", ({ target }) => {
  const number = options.findIndex((option) => option.element === target.closest(".palette-option"));
  if (number >= 0 && number !== active) activate(number);
});
list.addEventListener("click", (event) => {
  const number = options.findIndex((option) => option.element === event.target.closest(".palette-option"));
  // With a modifier, the browser opens the link elsewhere.
  if (number < 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  choose(number, "here");
});
document.querySelector('#user-menu form')?.addEventListener("submit", forgetRecent);
// A page from the browser's cache must not show the palette that led away from it.
window.addEventListener("pageshow", (event) => event.persisted && dialog.open && dialog.close());
