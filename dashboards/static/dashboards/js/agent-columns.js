/* The menu of columns of the list of agents: a choice applies at once. Without this script, the button applies it. */

import { adoptTimes, parsePage, swap } from "./page.js";

/** Parts of the page that depend on the columns. */
const PARTS = ["rows", "download"];
const form = document.querySelector("#columns form");
let requestCount = 0;

/** Keep the columns, and show the list with them. The response is the list that the form would lead to. */
async function apply() {
  const number = ++requestCount;
  const answer = await fetch(`?${new URLSearchParams(new FormData(form))}`);
  const url = new URL(answer.url);
  if (!answer.ok || url.pathname !== location.pathname) {
    // Signed out, for example: the page says so.
    form.submit();
    return;
  }
  const page = parsePage(await answer.text());
  // The user has chosen again.
  if (number !== requestCount) return;
  history.replaceState(null, "", url.search || url.pathname);
  for (const id of PARTS) {
    const fresh = page.getElementById(id);
    if (fresh !== null) swap(document.getElementById(id), document.importNode(fresh, true));
  }
  adoptTimes(document);
  document.dispatchEvent(new Event("refreshed"));
}

if (form !== null) {
  form.querySelector("button").hidden = true;
  form.addEventListener("change", () => apply().catch(() => form.submit()));
}
