/* What a silence would match, while it is written. */

import { adoptTimes, fetchPage } from "./page.js";

const form = document.getElementById("silence-form");
const preview = document.getElementById("preview");
let timer = null;
let asked = 0;

async function show() {
  const number = (asked += 1);
  const query = new URLSearchParams({ matchers: form.elements.matchers.value });
  try {
    const page = await fetchPage(`${form.dataset.preview}?${query}`);
    if (page === null || number !== asked) return;
    preview.replaceChildren(...[...page.body.childNodes].map((node) => document.importNode(node, true)));
  } catch {
    preview.textContent = "What it matches cannot be asked now.";
  }
}

form?.elements.matchers.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(show, 250);
});
/** What the moment it begins, which is UTC, is by the clock on this person's wall. */
function sayLocal() {
  const { value } = form.elements.starts;
  const at = value ? new Date(`${value}Z`) : null;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  help.textContent = at === null || Number.isNaN(at.getTime())
    ? "Empty: now."
    : `That is ${at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" })} in ${zone}.`;
}

const help = document.getElementById("id_starts_helptext");
form?.elements.starts.addEventListener("input", sayLocal);
if (form?.elements.starts.value) sayLocal();
adoptTimes(document);
