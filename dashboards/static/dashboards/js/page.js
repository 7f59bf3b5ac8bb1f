/* Functions of every page: theme, account menu, relative times, and the age of the data. Pages with a live link pass it
   to `showFreshness`; on the other pages, the age grows until the next refresh. */

import { colour } from "./fleet-state.js";

const THEMES = ["system", "light", "dark"];
const number = new Intl.NumberFormat("en");

/** Format a count: 10,000. */
export function formatCount(n) {
  return number.format(n);
}

/** Format a duration: 0.4 s, 47 s, 12 min, 3 h, 2 d. */
export function formatAge(ms) {
  const s = Math.abs(ms) / 1000;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 119.5) return `${Math.round(s)} s`;
  if (s < 7170) return `${Math.round(s / 60)} min`;
  if (s < 169_200) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

/** A time that is further in the future than this was dated by a clock that differs. */
export const CLOCKS_DIFFER_MS = 2_000;

/** Return the age of the data in words. */
function ageWords(ms) {
  return ms < -CLOCKS_DIFFER_MS ? `dated ${formatAge(ms)} in the future` : `${formatAge(Math.max(0, ms))} old`;
}

/** Write a text into an element that has a different text: the browser would lay out an equal text again. */
export function writeText(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

/** Set an attribute that has a different value: the browser would build the shape of an equal `href` again. */
export function writeAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** What precedes an age in the bar. A narrow window hides it, but not from screen readers. */
const AGE_LEAD = "Data is ";

function writeAge(element, words) {
  if (element.textContent === words) return;
  if (!words.startsWith(AGE_LEAD)) {
    element.textContent = words;
    return;
  }
  const lead = document.createElement("span");
  lead.className = "age-lead";
  lead.textContent = AGE_LEAD;
  element.replaceChildren(lead, words.slice(AGE_LEAD.length));
}

/** Return a function that requests `paint`, which runs at most once per `everyMs`, and never while the page is hidden. */
export function throttled(paint, everyMs) {
  let last = -Infinity;
  let asked = false;
  const run = () => {
    asked = false;
    if (document.hidden) return;
    last = performance.now();
    paint();
  };
  const request = () => {
    if (asked) return;
    asked = true;
    const wait = Math.max(0, everyMs - (performance.now() - last));
    setTimeout(() => (document.hidden ? run() : requestAnimationFrame(run)), wait);
  };
  document.addEventListener("visibilitychange", () => !document.hidden && request());
  return request;
}

/** Return a page as a separate document. */
export function parsePage(text) {
  // Its style element has another nonce, which the CSP of this page rejects.
  return new DOMParser().parseFromString(text.replace(/<style.*?<\/style>/s, ""), "text/html");
}

/** Fetch a page as a separate document, or null if that fails. */
export async function fetchPage(url, options = {}) {
  const answer = await fetch(url, options);
  // Signed out: the sign-in page is not part of this page.
  if (!answer.ok || answer.redirected) return null;
  return parsePage(await answer.text());
}

/** Fetch one element of a page by its id, or null. `options`: those of fetch. */
export async function fetchPart(url, id, options = {}) {
  const part = (await fetchPage(url, options))?.getElementById(id);
  return part ? document.importNode(part, true) : null;
}

/** Replace an element by a new version of it. Focus, scroll positions of tables and open details are kept. */
export function swap(old, fresh) {
  const frames = [...old.querySelectorAll(".table-frame[id]")].map((frame) => [frame.id, frame.scrollLeft]);
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const left = old.scrollLeft;
  for (const { id } of old.querySelectorAll("details[id][open]")) fresh.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
  old.replaceWith(fresh);
  fresh.scrollLeft = left;
  for (const [id, scrolled] of frames) document.getElementById(id)?.scrollTo(scrolled, 0);
  if (focused === old) fresh.focus();
  else if (focused !== null) findSame(focused, fresh)?.focus({ preventScroll: true });
}

/** Return the element of a new part that an element of the old part has become: the focus stays where a user put it. */
function findSame(element, fresh) {
  for (const name of ["href", "id", "aria-label", "data-key"]) {
    const value = element.getAttribute(name);
    if (value) return fresh.querySelector(`[${name}="${CSS.escape(value)}"]`);
  }
  const details = element.localName === "summary" ? element.parentElement.id : "";
  if (details !== "") return fresh.querySelector(`#${CSS.escape(details)} > summary`);
  return [...fresh.querySelectorAll(element.localName)].find((other) => other.textContent === element.textContent);
}

/** Start updating all relative times below `root`, from the ages that the server rendered. */
export function adoptTimes(root) {
  const now = performance.now();
  for (const time of root.querySelectorAll("[data-ago-ms]")) {
    if (time.dataset.agoMs !== "") time.agoZero = now - Number(time.dataset.agoMs);
  }
  tellTimes(root);
}

function tellTimes(root) {
  const now = performance.now();
  for (const time of root.querySelectorAll("[data-ago-ms]")) {
    const ago = time.querySelector(".ago");
    if (ago === null || time.agoZero === undefined) continue;
    const ms = now - time.agoZero;
    // The clocks of two processes may differ: a time slightly in the future may be a time of just now.
    const text = ms >= 0 ? `${formatAge(ms)} ago` : ms > -CLOCKS_DIFFER_MS ? "now" : `in ${formatAge(ms)}`;
    writeText(ago, text);
  }
}

let said = -Infinity;
let lastSaid = "";

/** Announce a text to screen readers. Repeated and too frequent texts are skipped. */
export function announce(text, { everyMs = 10_000 } = {}) {
  const now = performance.now();
  if (text === lastSaid || now - said < everyMs) return;
  said = now;
  lastSaid = text;
  document.getElementById("live-region").textContent = text;
}

/** Announce an urgent text to screen readers, which interrupt for it. */
export function interrupt(text) {
  said = performance.now();
  lastSaid = text;
  document.getElementById("alert-region").textContent = text;
}

/** Show the age of the data, and mark the page as stale while the data is not current. */
export function showFreshness(live, { paused = () => false } = {}) {
  const age = document.getElementById("age");
  const text = document.getElementById("age-text");
  const paint = () => {
    if (live.isSuspended) {
      // The page shows the past: it has another text in this place, and the data cannot become stale.
      markStale(false);
      document.getElementById("banner").hidden = true;
      return;
    }
    const ms = live.ageMs;
    const distrust = live.distrust;
    markStale(distrust !== null);
    age.toggleAttribute("data-stale", distrust !== null);
    age.toggleAttribute("data-paused", paused() && distrust === null);
    writeAttribute(age.querySelector("use"), "href", distrust === null && ms !== null ? "#shape-healthy" : "#shape-unknown");
    const words = ms === null ? "no data yet" : ageWords(live.aheadMs > 0 ? -live.aheadMs : ms);
    const shown = paused() ? `Paused · ${words}` : ms === null ? "No data yet" : `${AGE_LEAD}${words}`;
    writeAge(text, shown);
    showBanner(live, distrust, ms);
  };
  live.addEventListener("link", paint);
  live.addEventListener("change", paint);
  setInterval(paint, 500);
  paint();
}

function showBanner(live, distrust, ms) {
  const banner = document.getElementById("banner");
  const link = document.getElementById("banner-link");
  const age = ms === null ? "No data yet" : `Data is ${formatAge(ms)} old`;
  let text = "";
  link.hidden = true;
  if (live.link === "signed-out") {
    text = `You are signed out. ${age}.`;
    link.href = `/accounts/login/?next=${encodeURIComponent(location.pathname + location.search)}`;
    link.textContent = "Sign in again";
    link.hidden = false;
  } else if (live.link === "not-allowed") {
    text = "Not allowed: your account has no access to this cluster.";
  } else if (distrust === "link") {
    text = `${age}: the console does not respond.${retryWords(live)}`;
  } else if (distrust === "pollers") {
    text = `${age}: polling has stopped. All agents except retired ones are shown as unknown.`;
  } else if (live.aheadMs > 0) {
    text = `Clock skew: the newest data is dated ${formatAge(live.aheadMs)} in the future. The clocks of the Refloat workers, which poll the fleet, and of the web server differ, so the age of the data is unknown.`;
  }
  if (live.link !== "signed-out" && (distrust === "pollers" || live.aheadMs > 0)) Object.assign(link, { href: `${document.body.dataset.prefix}/data-health/`, textContent: "Data health", hidden: false });
  banner.hidden = text === "";
  writeText(document.getElementById("banner-text"), text);
}

function retryWords(live) {
  if (live.retryAt === null) return " Reconnecting.";
  return ` Reconnecting in ${Math.max(1, Math.ceil((live.retryAt - performance.now()) / 1000))} s.`;
}

/** Title and icon of the tab: symbol and number of the headline, and whether the data is too old. */
const tab = { title: "", state: "healthy", count: 0, stale: false };
/** What `paintTab` writes before the title of the page. */
const TAB_MARK = /^(\(\? old data\) |[^\p{L}\p{N}\s(][\d,]* )/u;

/** Show the headline in the title and the icon of the tab. */
export function markTab({ tab_title, state, count }) {
  Object.assign(tab, { title: tab_title, state, count });
  paintTab();
}

/** Mark the page and its tab as stale. */
function markStale(stale) {
  document.documentElement.toggleAttribute("data-stale", stale);
  if (tab.stale === stale) return;
  tab.stale = stale;
  paintTab();
}

function paintTab() {
  const mark = tab.stale ? "(? old data) " : tab.title && `${tab.title} `;
  const title = `${mark}${document.title.replace(TAB_MARK, "")}`;
  if (document.title !== title) document.title = title;
  const icon = document.getElementById("favicon");
  icon.dataset.calm ??= icon.getAttribute("href");
  const isMarked = ["stranded", "at_risk"].includes(tab.state) && tab.count > 0;
  const href = tab.stale ? markedIcon("?", colour("unknown")) : isMarked ? countIcon(tab) : icon.dataset.calm;
  if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
}

function countIcon({ count, state }) {
  return markedIcon(count > 99 ? "99+" : String(count), colour(state));
}

function markedIcon(words, colour) {
  const size = words.length > 2 ? 15 : 19;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="${colour}"/>`
    + `<text x="16" y="${16 + size * 0.36}" font-family="sans-serif" font-size="${size}" font-weight="700" fill="#fff" text-anchor="middle">${words}</text></svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

function keptTheme() {
  return document.documentElement.dataset.theme ?? "system";
}

function showTheme(button, theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const words = `Theme: ${theme}`;
  button.setAttribute("aria-label", words);
  button.title = words;
}

/** Choose "system", "light" or "dark" for all pages of this browser. */
export function chooseTheme(theme) {
  showTheme(document.getElementById("theme"), theme);
  try {
    localStorage.setItem("refloat.theme", theme);
  } catch {
    // Storage is disabled: the choice lasts until the page is left.
  }
  document.dispatchEvent(new Event("themechange"));
}

function startTheme() {
  const button = document.getElementById("theme");
  if (button === null) return;
  showTheme(button, keptTheme());
  button.addEventListener("click", () => chooseTheme(THEMES[(THEMES.indexOf(keptTheme()) + 1) % THEMES.length]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("themechange")));
}

/** Return whether the page is dark, by the user's choice or by the system's. */
export function isDark() {
  const theme = keptTheme();
  return theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
}

/** Close a menu of the bar by a click beside it, and by Escape, which gives the focus back. */
function startMenu(menu) {
  document.addEventListener("click", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
}

/** Measure the banner, which has more lines in a narrow window, for the bars that stick above it. Hidden, it has no height. */
function startBanner() {
  const banner = document.getElementById("banner");
  new ResizeObserver(() => document.documentElement.style.setProperty("--banner-height", `${banner.offsetHeight}px`)).observe(banner);
}

/** Keep the entry of the current page in view where the navigation is wider than the bar and scrolls. */
function startNavigation() {
  for (const entry of document.querySelectorAll(".nav [aria-current], .tabs[aria-label=Alerts] [aria-current]")) keepInView(entry);
}

/** Keep the entry of the current page in view, in a row of entries that scrolls sideways. */
function keepInView(entry) {
  const nav = entry.parentElement;
  // scrollIntoView would scroll the page as well.
  const observer = new ResizeObserver(() => {
    nav.scrollLeft = entry.offsetLeft + (entry.offsetWidth - nav.clientWidth) / 2;
  });
  // Entries grow too: by a badge that arrives later, or by larger text.
  for (const box of [nav, ...nav.children]) observer.observe(box);
}

/** After this time without a refresh, a rendered page counts as stale. */
const STILL_STALE_MS = 30_000;
let stillZero = null;
let stillStale = false;

/** On a page without a live link: start from the age that the server rendered, and let it grow. */
export function adoptAge() {
  const age = document.getElementById("age");
  if (age === null || document.body.dataset.live !== undefined) return;
  stillZero = age.dataset.ageMs === "" ? null : performance.now() - Number(age.dataset.ageMs);
  stillStale = age.hasAttribute("data-stale");
  tellAge();
}

function tellAge() {
  const age = document.getElementById("age");
  if (age === null || document.body.dataset.live !== undefined) return;
  const ms = stillZero === null ? null : performance.now() - stillZero;
  const stale = stillStale || (ms !== null && ms > STILL_STALE_MS);
  markStale(stale);
  age.toggleAttribute("data-stale", stale);
  if (ms !== null) writeAge(document.getElementById("age-text"), `${AGE_LEAD}${ageWords(ms)}`);
}

/** Why the data of a page without a live link is not current, as `Live.distrust`, and when its newest poll ended. */
const still = { link: "open", distrust: null, concludedAt: null, aheadMs: 0, retryAt: null };

/**
 * Show the banner of old data on a page without a live link. `status`: `age_ms` and `stale` of the newest answer, or null
 * without one; `link`: "open", "silent" or "signed-out".
 */
export function showStatus(status, link = "open") {
  still.link = link;
  if (status !== null) {
    still.concludedAt = status.age_ms === null ? null : performance.now() - status.age_ms;
    still.aheadMs = status.age_ms !== null && status.age_ms < -CLOCKS_DIFFER_MS ? -status.age_ms : 0;
  }
  if (link === "silent") still.distrust = "link";
  else if (status !== null) still.distrust = status.stale ? "pollers" : null;
  tellStatus();
}

function tellStatus() {
  const { live, past } = document.body.dataset;
  if (live !== undefined || past !== undefined) return;
  showBanner(still, still.distrust, still.concludedAt === null ? null : Math.max(0, performance.now() - still.concludedAt));
}

/** Name the browser's time zone in a cookie, for forms with local times: dashboards/shared/time_zones.py. */
function startTimeZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.cookie = `refloat_zone=${encodeURIComponent(zone)}; path=/; max-age=31536000; samesite=lax`;
}

/** Bring the message of an action into view: a fragment in the address scrolls the page past it. */
function showMessages() {
  const messages = document.querySelector(".messages");
  if (messages === null || location.hash === "") return;
  addEventListener("load", () => setTimeout(() => messages.scrollIntoView({ block: "nearest" })), { once: true });
}

startTheme();
showMessages();
startTimeZone();
document.querySelectorAll(".bar details.menu").forEach(startMenu);
startNavigation();
startBanner();
adoptAge();
adoptTimes(document);
setInterval(() => {
  tellTimes(document);
  tellAge();
  tellStatus();
}, 1_000);
