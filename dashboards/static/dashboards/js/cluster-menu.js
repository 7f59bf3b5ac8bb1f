/* The menu of clusters in the bar: filled when it is opened, each entry leads to the same page in another cluster. */

import { pathInCluster } from "./cluster-path.js";
import { formatCount } from "./page.js";

const menu = document.getElementById("cluster-menu");
const list = document.getElementById("cluster-list");
const status = document.getElementById("cluster-status");
const { cluster: currentCluster, prefix } = document.body.dataset;
let shownContent = "";

function makeEntry({ id, name, prefix: otherPrefix, symbol, state, stranded_count: strandedCount }) {
  const link = document.createElement("a");
  link.className = `state-${symbol}`;
  link.innerHTML = '<svg class="shape" aria-hidden="true"><use></use></svg><span class="cluster-entry"><bdi></bdi></span><span class="cluster-note"></span>';
  link.querySelector("use").setAttribute("href", `#shape-${symbol}`);
  link.querySelector("bdi").textContent = name;
  link.querySelector(".cluster-note").textContent = strandedCount > 0 ? `${formatCount(strandedCount)} stranded` : state;
  link.href = id === currentCluster ? location.href : pathInCluster(location, prefix, otherPrefix);
  if (id === currentCluster) link.setAttribute("aria-current", "true");
  const item = document.createElement("li");
  item.append(link);
  return item;
}

/* Entries that are as before stay, and so does the focus on one of them: the menu may be in use when the answer arrives. */
function show(clusters) {
  const content = JSON.stringify([location.href, clusters]);
  if (content === shownContent) return;
  const focusedHref = list.contains(document.activeElement) ? document.activeElement.href : "";
  list.replaceChildren(...clusters.map(makeEntry));
  shownContent = content;
  [...list.querySelectorAll("a")].find((link) => link.href === focusedHref)?.focus();
}

async function fill() {
  if (!menu.open) return;
  if (list.childElementCount === 0) status.textContent = "Loading…";
  try {
    const answer = await fetch("/clusters/menu.json", { headers: { Accept: "application/json" } });
    if (answer.redirected) throw new Error("You are signed out.");
    const { clusters, detail } = await answer.json();
    if (!answer.ok) throw new Error(detail);
    show(clusters);
    status.textContent = "";
  } catch (error) {
    status.textContent = error instanceof TypeError ? "The console does not respond." : error.message;
  }
}

menu?.addEventListener("toggle", fill);
/* It may have been opened before this script was loaded. */
if (menu) fill();
