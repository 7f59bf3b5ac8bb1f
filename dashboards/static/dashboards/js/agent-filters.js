/* The query bar of the list of agents: a combobox (WAI-ARIA APG) that suggests keys of filters, then their values. An
   accepted filter becomes a chip: the page is loaded with it in `?q=`, and the field has the focus again. Without this
   script, the field and the chips are a form and links. */

import { declareKeys } from "./keys.js";
import { formatCount } from "./page.js";

const FOCUS_KEY = "refloat-list-focus";
const DELAY_MS = 100;
/** Everything since the last blank that is not quoted. */
const LAST_FILTER = /(?:"[^"]*"?|'[^']*'?|[^\s"'])*$/;

const form = document.getElementById("query-form");
const field = document.getElementById("query");
const accepted = document.getElementById("accepted-filters");
const popup = document.getElementById("suggestions-popup");
const list = document.getElementById("suggestions");
/** Suggestions by address, for this page. */
const answers = new Map();
let suggestions = [];
let active = -1;
let timer = null;
let requestCount = 0;

function remember(focus) {
  try {
    sessionStorage.setItem(FOCUS_KEY, focus);
  } catch {
    // Storage is disabled: the focus is at the top of the next page.
  }
}

function lastFilter() {
  return field.value.slice(0, field.selectionEnd).match(LAST_FILTER)[0];
}

function close() {
  clearTimeout(timer);
  requestCount += 1;
  popup.hidden = true;
  activate(-1);
  field.setAttribute("aria-expanded", "false");
}

/** Mark a suggestion as the one that Enter accepts. */
function activate(index) {
  active = index;
  for (const [position, option] of [...list.children].entries()) option.setAttribute("aria-selected", String(position === index));
  if (index < 0) {
    field.removeAttribute("aria-activedescendant");
    return;
  }
  field.setAttribute("aria-activedescendant", list.children[index].id);
  list.children[index].scrollIntoView({ block: "nearest" });
}

function optionOf({ label, hint, count }, index) {
  const option = document.createElement("li");
  option.id = `suggestion-${index}`;
  option.className = "suggestion";
  option.role = "option";
  option.setAttribute("aria-selected", "false");
  const words = document.createElement("bdi");
  words.textContent = label;
  option.append(words);
  if (hint !== "") option.append(partOf("suggestion-hint", hint));
  if (count !== null) {
    option.append(partOf("suggestion-count", `${formatCount(count)} agent${count === 1 ? "" : "s"}`));
    option.classList.toggle("has-none", count === 0);
  }
  return option;
}

function partOf(name, text) {
  const part = document.createElement("span");
  part.className = name;
  part.textContent = text;
  return part;
}

function show(shown) {
  suggestions = shown;
  list.replaceChildren(...suggestions.map(optionOf));
  activate(-1);
  popup.hidden = suggestions.length === 0;
  field.setAttribute("aria-expanded", String(!popup.hidden));
}

async function suggest() {
  const number = (requestCount += 1);
  const query = new URLSearchParams({ q: accepted.value, text: lastFilter() });
  const at = new URLSearchParams(location.search).get("at");
  if (at !== null) query.set("at", at);
  const key = query.toString();
  if (!answers.has(key)) {
    try {
      const answer = await fetch(`${field.dataset.suggestions}?${query}`);
      if (!answer.ok || answer.redirected) return;
      answers.set(key, (await answer.json()).suggestions);
      setTimeout(() => answers.delete(key), 5_000);
    } catch {
      // The console does not respond: filters can be typed without suggestions.
      return;
    }
  }
  if (number === requestCount && document.activeElement === field) show(answers.get(key) ?? []);
}

function suggestSoon() {
  clearTimeout(timer);
  timer = setTimeout(suggest, DELAY_MS);
}

/** Put a suggestion in the place of what is typed. A key waits for its value; a whole filter is applied. */
function accept({ text }) {
  const before = field.value.slice(0, field.selectionEnd).replace(LAST_FILTER, "");
  const rest = field.value.slice(field.selectionEnd);
  field.value = `${before}${text}${rest}`;
  const end = before.length + text.length;
  field.setSelectionRange(end, end);
  field.focus();
  close();
  if (text.endsWith(":")) suggest();
  else form.requestSubmit();
}

function move(step) {
  if (popup.hidden) {
    suggest();
    return;
  }
  const count = suggestions.length;
  activate(active < 0 && step < 0 ? count - 1 : (active + step + count) % count);
}

field.addEventListener("input", suggestSoon);
field.addEventListener("focus", suggestSoon);
field.addEventListener("click", () => popup.hidden && suggestSoon());
field.addEventListener("blur", close);
field.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.key === "Enter" && !popup.hidden && active >= 0) {
    event.preventDefault();
    accept(suggestions[active]);
  } else if (event.key === "Escape" && !popup.hidden) {
    event.preventDefault();
    event.stopPropagation();
    close();
  } else if (event.key === "Backspace" && field.value === "") {
    document.querySelector(".filter-chip:last-child .filter-remove")?.focus();
  }
});
declareKeys("Query bar", [
  ["↑ or ↓", "Choose a suggestion"],
  ["Enter", "Accept the suggestion, or apply the filters"],
  ["Esc", "Close the suggestions"],
  ["Backspace", "Go to the last filter, when the field is empty"],
]);
// The field keeps the focus, so that a click on a suggestion is not a blur first.
popup.addEventListener("mousedown", (event) => event.preventDefault());
popup.addEventListener("click", ({ target }) => {
  const option = target.closest("[role=option]");
  if (option !== null) accept(suggestions[[...list.children].indexOf(option)]);
});

// The bar is one field to a pointer.
document.getElementById("query-bar").addEventListener("click", ({ target }) => {
  if (target.closest(".filter-chip, .suggestions") === null) field.focus();
});
form.addEventListener("submit", () => {
  // One `q` in the address, which is the state of the page.
  accepted.value = [accepted.value, field.value.trim()].filter((text) => text !== "").join(" ");
  accepted.disabled = accepted.value === "";
  field.disabled = true;
  remember("#query");
});
// Browsers may show a page again as it was left.
window.addEventListener("pageshow", () => {
  accepted.value = accepted.defaultValue;
  accepted.disabled = field.disabled = false;
});

document.addEventListener("click", ({ target }) => {
  const state = target.closest("#state-filters a");
  if (state !== null) remember(`#state-filters a[data-state="${state.dataset.state}"]`);
  else if (target.closest(".filter-remove") !== null) remember("#query");
});

// The page has been loaded again. The keyboard goes on where it was.
let focus = null;
try {
  focus = sessionStorage.getItem(FOCUS_KEY);
  sessionStorage.removeItem(FOCUS_KEY);
} catch {
  // As above.
}
if (focus !== null) {
  const element = document.querySelector(focus);
  element?.focus({ preventScroll: true });
  if (element === field) {
    clearTimeout(timer);
    field.setSelectionRange(field.value.length, field.value.length);
  }
}
