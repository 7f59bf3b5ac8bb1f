/* Incidents on every page: the badges in the navigation, failing notification channels, and a toast when an incident opens or resolves. Pages with a
   live link get them at once ("refloat-incidents" on the window); the other pages poll. */

import { label, STATES } from "./fleet-state.js";
import { addMoment, pastMoment } from "./moment.js";
import { interrupt, markTab, showStatus } from "./page.js";
import { placeToasts } from "./toast-place.js";

const EVERY_MS = 15_000;
const STAYS_MS = 15_000;
/** Requests without an answer after which the console counts as silent. */
const MIN_FAILURES = 2;
/** Maximum number of toasts: in a burst of incidents, the page stays in view. */
const MAX_TOASTS = 3;
/** A toast may cover a place that somebody is about to click. It waits until the pointer has rested for this long, but not for ever. */
const POINTER_REST_MS = 700;
const MAX_WAIT_MS = 5_000;

const prefix = document.body.dataset.prefix;
const badge = document.getElementById("incident-badge");
const toasts = document.getElementById("toasts");

/** Sound and desktop notifications: stored per browser, because they depend on the computer. */
const choice = {
  sound: () => localStorage.getItem("refloat-sound") === "on",
  desktop: () => localStorage.getItem("refloat-desktop") === "on",
};

function showBadge(open) {
  if (badge === null || open === undefined || Object.keys(open).length === 0) return;
  const [critical, warning] = [open.critical ?? 0, open.warning ?? 0];
  badge.hidden = critical + warning === 0;
  badge.dataset.severity = critical > 0 ? "critical" : "warning";
  // A number alone is taken for the number of an incident.
  badge.firstElementChild.textContent = `${critical + warning} open`;
  badge.lastElementChild.textContent = critical + warning === 1 ? " incident" : " incidents";
}

const headlineBadge = document.getElementById("headline-badge");

/** Show symbol and number of the headline beside *Fleet now*, with its text. */
function showHeadlineBadge({ tab_title, state, count, text }) {
  if (headlineBadge === null) return;
  headlineBadge.hidden = tab_title === "";
  headlineBadge.className = `badge headline-badge state-${state}`;
  headlineBadge.firstElementChild.textContent = tab_title;
  headlineBadge.lastElementChild.textContent = ` ${count} ${label(STATES.indexOf(state))}`;
  headlineBadge.title = text;
}

const channelBadge = document.getElementById("channel-badge");

/** Show that notification channels are failing: a mark in the navigation, and the notices of pages that have a place. */
function showFailingChannels(channels) {
  channelBadge.hidden = channels.length === 0;
  channelBadge.title = channels.map(({ notice }) => notice).join("\n");
  const place = document.getElementById("failing-channels");
  if (place === null) return;
  const notices = channels.map(({ number, notice }) => {
    const line = document.createElement("p");
    line.className = "notice notice-warn";
    const link = document.createElement("a");
    link.href = `${prefix}/alerts/channels/#channel-${number}`;
    link.textContent = "Show channel";
    line.append(`${notice} `, link);
    return line;
  });
  // Equal notices stay: a click or the focus on one of them must not get lost.
  const text = (lines) => [...lines].map((line) => line.textContent).join("\n");
  if (text(notices) !== text(place.children)) place.replaceChildren(...notices);
}

/** Time of the last toast by incident: the live link and polling must not both show one. */
const told = new Map();

let pointerMovedAt = -Infinity;
for (const event of ["pointermove", "pointerdown"]) {
  addEventListener(event, () => { pointerMovedAt = performance.now(); }, { passive: true, capture: true });
}

/** Call `work` at a moment when nobody is about to click: what is under the pointer must not change then. */
function whenPointerRests(work, since = performance.now()) {
  const now = performance.now();
  const wait = Math.min(pointerMovedAt + POINTER_REST_MS, since + MAX_WAIT_MS) - now;
  if (wait <= 0) work();
  else setTimeout(() => whenPointerRests(work, since), wait);
}

function remove(toast) {
  toast.remove();
  placeToasts(toasts);
}

for (const event of ["scroll", "resize"]) addEventListener(event, () => requestAnimationFrame(() => placeToasts(toasts)), { passive: true });

function showToast({ text, severity, number }) {
  told.set(number, Date.now());
  const toast = document.createElement("div");
  toast.className = `toast toast-${severity}`;
  const link = document.createElement("a");
  link.textContent = text;
  // Without an incident, the toast is about a silence that ends.
  link.href = number === null ? `${prefix}/silences/` : `${prefix}/incidents/${number}/`;
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "×";
  close.setAttribute("aria-label", "Close");
  close.addEventListener("click", () => remove(toast));
  toast.append(link, close);
  whenPointerRests(() => {
    toasts.append(toast);
    while (toasts.childElementCount > MAX_TOASTS) toasts.firstElementChild.remove();
    placeToasts(toasts);
    const end = () => toast.matches(":hover, :focus-within") || remove(toast);
    setTimeout(() => whenPointerRests(end), STAYS_MS);
  });
  if (severity === "critical") interrupt(text);
  if (choice.sound()) beep(severity === "critical" ? 880 : 520);
  if (choice.desktop() && document.hidden && Notification.permission === "granted") {
    new Notification("Refloat", { body: text, tag: `incident-${number}` });
  }
}

function beep(pitch) {
  const audio = new AudioContext();
  const [tone, volume] = [audio.createOscillator(), audio.createGain()];
  tone.frequency.value = pitch;
  volume.gain.setValueAtTime(0.15, audio.currentTime);
  volume.gain.exponentialRampToValueAtTime(0.001, audio.currentTime + 0.6);
  tone.connect(volume).connect(audio.destination);
  tone.start();
  tone.stop(audio.currentTime + 0.6);
  tone.onended = () => audio.close();
}

/** Show a toast for events since this tab's last poll; older events are on its pages. */
function tellNewest(newest) {
  if (newest === undefined) return;
  const last = sessionStorage.getItem("refloat-told");
  sessionStorage.setItem("refloat-told", String(newest.event));
  if (last === null || newest.event <= Number(last)) return;
  if (Date.now() - (told.get(newest.number) ?? 0) > 2 * EVERY_MS) showToast(newest);
}

let failureCount = 0;

async function ask() {
  if (document.hidden && !choice.desktop()) return;
  try {
    const at = pastMoment();
    const answer = await fetch(addMoment(`${prefix}/incidents/badge.json`), { headers: { Accept: "application/json" } });
    failureCount = 0;
    if (answer.redirected) showStatus(null, "signed-out");
    // The slider of the map has moved on: the answer is about another moment.
    if (!answer.ok || answer.redirected || at !== pastMoment()) return;
    const { open, newest, headline, data, failing_channels: failingChannels } = await answer.json();
    showStatus(data);
    showBadge(open);
    showFailingChannels(failingChannels);
    // A live page has a newer one.
    if (headline && document.body.dataset.live === undefined) {
      showHeadlineBadge(headline);
      // The tab of a past moment has the headline of that moment already.
      if (at === null) markTab(headline);
    }
    tellNewest(newest);
  } catch {
    // The console is unreachable. A single request may get lost.
    failureCount += 1;
    if (failureCount >= MIN_FAILURES) showStatus(null, "silent");
  }
}

function offerChoice(id, name) {
  const box = document.getElementById(id);
  if (box === null) return;
  box.checked = choice[name]();
  box.addEventListener("change", async () => {
    if (box.checked && name === "desktop" && (await Notification.requestPermission()) !== "granted") box.checked = false;
    localStorage.setItem(`refloat-${name}`, box.checked ? "on" : "off");
    if (box.checked && name === "sound") beep(520);
  });
}

window.addEventListener("refloat-incidents", (event) => {
  if (pastMoment() === null) showBadge(event.detail.open);
  if (event.detail.text) showToast(event.detail);
});
window.addEventListener("refloat-headline", (event) => {
  if (pastMoment() === null) showHeadlineBadge(event.detail);
});
offerChoice("toast-sound", "sound");
offerChoice("toast-desktop", "desktop");
if (badge !== null) {
  ask();
  setInterval(ask, EVERY_MS);
  document.addEventListener("visibilitychange", ask);
  // The badges of a page are those of its moment, which the slider of the map changes.
  new MutationObserver(ask).observe(document.body, { attributeFilter: ["data-past"] });
}
