/* Times are in UTC everywhere. The local time of the browser is the tooltip of every time, and stands beside it where the
   user chose *Show local time*. The choice is a cookie. docs/reference/keys.md, "Times" */

const COOKIE = "refloat_times";
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
const clockOfMinute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
const day = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit" });

const button = document.getElementById("local-times");
let isShown = document.cookie.split("; ").includes(`${COOKIE}=browser`);

/** Return a moment in the browser's zone in the form of its UTC text: with seconds or a date if that has them. */
export function formatLocal(at, utcText) {
  const date = day.format(at);
  const needsDate = /\d{4}-\d\d-\d\d/.test(utcText) || date !== at.toISOString().slice(0, 10);
  const time = (/\d:\d\d:\d\d/.test(utcText) ? clock : clockOfMinute).format(at);
  return needsDate ? `${date} ${time}` : time;
}

function showTime(time) {
  const mark = `${time.dateTime} ${isShown}`;
  if (time.dataset.local === mark) return;
  time.dataset.local = mark;
  const at = new Date(time.dateTime);
  if (Number.isNaN(at.getTime())) return;
  time.querySelector(".local-time")?.remove();
  time.title = `${day.format(at)} ${clock.format(at)} (${zone})`;
  if (!isShown || zone === "UTC") return;
  const local = document.createElement("span");
  local.className = "local-time";
  local.textContent = ` (${formatLocal(at, (time.querySelector(".clock") ?? time).textContent)})`;
  (time.querySelector(".clock") ?? time.lastChild)?.after(local);
}

function showTimes() {
  for (const time of document.querySelectorAll("time[datetime]")) showTime(time);
}

function showChoice() {
  button?.setAttribute("aria-pressed", String(isShown));
  if (button !== null) button.title = zone === "UTC" ? "The zone of this browser is UTC" : `Zone of this browser: ${zone}`;
  showTimes();
}

button?.addEventListener("click", () => {
  isShown = !isShown;
  document.cookie = `${COOKIE}=${isShown ? "browser" : "utc"}; path=/; max-age=31536000; samesite=lax`;
  showChoice();
});
showChoice();
// Refreshed parts, dialogs, and pages that scripts fill.
new MutationObserver(showTimes).observe(document.body, { childList: true, subtree: true, attributeFilter: ["datetime"] });
