/* The trial of the notification routes follows the form: no button needed. */

import { fetchPage, swap } from "./page.js";

const trial = document.getElementById("trial");
const form = trial?.querySelector("form");
let number = 0;

/** Show whom the incident of the form would notify, and mark the routes that it ends at. */
async function show() {
  const current = (number += 1);
  const url = new URL(location.href);
  url.search = new URLSearchParams(new FormData(form)).toString();
  url.hash = "";
  const page = await fetchPage(url.href).catch(() => null);
  if (page === null || current !== number) return;
  const result = page.getElementById("trial-result");
  document.getElementById("trial-result")?.remove();
  if (result !== null) trial.append(document.importNode(result, true));
  const tree = document.querySelector(".route-tree");
  const freshTree = page.querySelector(".route-tree");
  if (tree !== null && freshTree !== null) swap(tree, document.importNode(freshTree, true));
}

form?.addEventListener("change", show);
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  show();
});
