/* Pages with tables: elements marked data-refresh are fetched again every few seconds, from the same URL.
   Nothing is refreshed while the user selects text, fills in a form of the page or has paused it (WCAG 2.2.2). Behind a
   dialog the page goes on: its ages and heartbeats would be wrong otherwise. */

import { adoptAge, adoptTimes, fetchPage, swap } from "./page.js";

const EVERY_MS = 5_000;

/** Return the time until the next refresh: a part of the page that waits for something needs a shorter one. */
function intervalMs() {
  return Number(document.querySelector("[data-refresh-ms]")?.dataset.refreshMs) || EVERY_MS;
}

const pause = document.getElementById("pause");
let paused = false;
let asking = false;

function busy() {
  const selection = document.getSelection();
  const form = document.activeElement?.form;
  // A form with data-live is outside of what is refreshed, or keeps its state itself.
  const isFillingIn = Boolean(form) && form.closest("dialog") === null && form.dataset.live === undefined;
  return asking || paused || document.hidden || (selection !== null && !selection.isCollapsed) || isFillingIn;
}

async function refresh() {
  if (busy()) return;
  asking = true;
  try {
    const page = await fetchPage(location.href);
    if (page === null || paused) return;
    for (const old of document.querySelectorAll("[data-refresh]:not(dialog *)")) {
      const fresh = page.getElementById(old.id);
      if (fresh === null) continue;
      swap(old, document.importNode(fresh, true));
    }
    adoptTimes(document);
    adoptAge();
    document.dispatchEvent(new Event("refreshed"));
  } catch {
    // The console is unreachable: the age keeps growing until the data counts as stale.
  } finally {
    asking = false;
  }
}

pause?.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.querySelector("use").setAttribute("href", paused ? "#glyph-play" : "#glyph-pause");
  pause.lastElementChild.textContent = paused ? "Resume updates" : "Pause updates";
  refresh();
});
document.addEventListener("visibilitychange", refresh);

function scheduleRefresh() {
  setTimeout(() => refresh().finally(scheduleRefresh), intervalMs());
}
scheduleRefresh();
