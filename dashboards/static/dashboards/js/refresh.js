/* Pages of tables: what is marked data-refresh is asked for again every few seconds, with the same address.
   Nothing moves while somebody selects text, writes into a form or paused it (WCAG 2.2.2). */

import { adoptAge, adoptTimes, fetchPage } from "./page.js";

const EVERY_MS = Number(document.querySelector("[data-refresh-ms]")?.dataset.refreshMs) || 5_000;

const pause = document.getElementById("pause");
let paused = false;
let asking = false;

function busy() {
  const selection = document.getSelection();
  return asking || paused || document.hidden || (selection !== null && !selection.isCollapsed) || document.activeElement?.form;
}

/** Put the fresh element in the old one's place; the focus stays on the same link, tables where they were scrolled, and
    what was unfolded stays so. */
function swap(old, fresh) {
  const frames = [...old.querySelectorAll(".table-frame[id]")].map((frame) => [frame.id, frame.scrollLeft]);
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const [left, link] = [old.scrollLeft, focused?.getAttribute("href")];
  for (const { id } of old.querySelectorAll("details[id][open]")) fresh.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
  old.replaceWith(fresh);
  fresh.scrollLeft = left;
  for (const [id, scrolled] of frames) document.getElementById(id)?.scrollTo(scrolled, 0);
  if (focused === old) fresh.focus();
  else if (link) fresh.querySelector(`[href="${CSS.escape(link)}"]`)?.focus();
}

async function refresh() {
  if (busy()) return;
  asking = true;
  try {
    const page = await fetchPage(location.href);
    if (page === null || paused) return;
    for (const old of document.querySelectorAll("[data-refresh]")) {
      const fresh = page.getElementById(old.id);
      if (fresh === null) continue;
      swap(old, document.importNode(fresh, true));
    }
    adoptTimes(document);
    adoptAge();
    document.dispatchEvent(new Event("refreshed"));
  } catch {
    // Unreachable: the age goes on growing, and in time the numbers look stale.
  } finally {
    asking = false;
  }
}

pause?.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.querySelector("use").setAttribute("href", paused ? "#glyph-play" : "#glyph-pause");
  pause.lastElementChild.textContent = paused ? "Go on" : "Pause";
  refresh();
});
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, EVERY_MS);
