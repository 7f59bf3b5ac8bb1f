/* Live preview of the incidents that a silence would match. */

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
    preview.textContent = "The preview could not be loaded.";
  }
}

form?.elements.matchers.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(show, 250);
});
/** Show the start of the silence, which is in UTC, in the user's time zone. */
function sayLocal() {
  const { value } = form.elements.starts;
  const at = value ? new Date(`${value}Z`) : null;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  help.textContent = at === null || Number.isNaN(at.getTime())
    ? "Empty: the silence starts now."
    : `Your local time: ${at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" })} (${zone}).`;
}

const help = document.getElementById("id_starts_helptext");
form?.elements.starts.addEventListener("input", sayLocal);
if (form?.elements.starts.value) sayLocal();
adoptTimes(document);
