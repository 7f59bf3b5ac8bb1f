/* Keyboard shortcuts of the incident page, and its link to copy. */

// Dialogs open by links: their listeners must be there before a link is clicked below.
import "./dialogs.js";
import { declareKeys, isShortcut } from "./keys.js";

declareKeys("Incident", [
  ["a", "Acknowledge the incident"],
  ["s", "Silence the cause, or extend its silence"],
  ["r", "Plan a reconnect campaign"],
  ["j or k", "Next or previous agent"],
  ["Enter", "Open the agent"],
]);

function walk(step) {
  // Only visible rows: a narrow page shows the first ten.
  const rows = [...document.querySelectorAll("#agents tbody tr")].filter((row) => row.offsetParent !== null);
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement.closest("tr"));
  const row = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
  row.tabIndex = -1;
  row.focus();
}

document.addEventListener("keydown", (event) => {
  if (!isShortcut(event)) return;
  if (event.key === "j" || event.key === "k") walk(event.key === "j" ? 1 : -1);
  else if (event.key === "Enter" && event.target.matches("tr")) event.target.querySelector("a")?.click();
  else document.querySelector(`:is(#acts, #silenced) [data-key="${CSS.escape(event.key)}"]`)?.click();
});

// A refresh replaces the buttons.
document.addEventListener("click", async ({ target }) => {
  const copy = target.closest("#copy-link");
  if (copy === null) return;
  await navigator.clipboard.writeText(location.href);
  copy.textContent = "Link copied";
});

// A link in a notification opens a dialog. Reloading the page later must not open it again.
const dialogLink = document.getElementById("open-dialog");
if (dialogLink !== null) {
  const url = new URL(location.href);
  url.searchParams.delete("open");
  history.replaceState(history.state, "", url);
  dialogLink.click();
}
