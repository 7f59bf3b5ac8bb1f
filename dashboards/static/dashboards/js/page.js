/* What every page does: the choice of colours, the account menu, relative times, and the look of the
   numbers' age. Pages with a live link hand it to `showFreshness`; the others let their age grow. */

import { colour } from "./fleet-state.js";

const THEMES = ["system", "light", "dark"];
const number = new Intl.NumberFormat("en");

/** A count as people read it: 10,000. */
export function formatCount(n) {
  return number.format(n);
}

/** A duration as people read it: 0.4 s, 47 s, 12 min, 3 h, 2 d. */
export function formatAge(ms) {
  const s = Math.abs(ms) / 1000;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 119.5) return `${Math.round(s)} s`;
  if (s < 7170) return `${Math.round(s / 60)} min`;
  if (s < 169_200) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

/** A moment that is further ahead than this was dated by another clock. */
export const CLOCKS_DIFFER_MS = 2_000;

/** The age of numbers in words; of those dated ahead of the console, that clocks differ. */
function ageWords(ms) {
  return ms < -CLOCKS_DIFFER_MS ? `dated ${formatAge(ms)} ahead` : `${formatAge(Math.max(0, ms))} old`;
}

/** Call `paint` once for many requests: at the next frame, at most every `everyMs`, never while hidden. */
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

/** Fetch a page as a document of its own, or null when it is not to be had. */
export async function fetchPage(url) {
  const answer = await fetch(url);
  // Signed out: the sign-in is no part of this page.
  if (!answer.ok || answer.redirected) return null;
  // Its style has a nonce of its own, which the policy of this page does not know.
  const text = (await answer.text()).replace(/<style.*?<\/style>/s, "");
  return new DOMParser().parseFromString(text, "text/html");
}

/** Fetch one element of a page by its id, or null. */
export async function fetchPart(url, id) {
  const part = (await fetchPage(url))?.getElementById(id);
  return part ? document.importNode(part, true) : null;
}

/** Put the fresh element in the old one's place; the focus stays on the same link, tables where they were scrolled, and
    what was unfolded stays so. */
export function swap(old, fresh) {
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

/** Keep every relative time below `root` true, from the ages the server rendered. */
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
    // Clocks of two processes differ by some milliseconds: what was dated just now is not still to come.
    const text = ms > -50 ? `${formatAge(Math.max(0, ms))} ago` : `in ${formatAge(ms)}`;
    if (ago.textContent !== text) ago.textContent = text;
  }
}

let said = -Infinity;
let lastSaid = "";

/** Say something to a screen reader; what only repeats or comes too often is left out. */
export function announce(text, { everyMs = 10_000 } = {}) {
  const now = performance.now();
  if (text === lastSaid || now - said < everyMs) return;
  said = now;
  lastSaid = text;
  document.getElementById("live-region").textContent = text;
}

/** Interrupt a screen reader; what it was told need not be said again politely. */
export function interrupt(text) {
  said = performance.now();
  lastSaid = text;
  document.getElementById("alert-region").textContent = text;
}

/** Show how old the numbers are and, when they must not be believed, let the data itself look it. */
export function showFreshness(live, { paused = () => false } = {}) {
  const age = document.getElementById("age");
  const text = document.getElementById("age-text");
  const paint = () => {
    const ms = live.ageMs;
    const distrust = live.distrust;
    markStale(distrust !== null);
    age.toggleAttribute("data-stale", distrust !== null);
    age.toggleAttribute("data-paused", paused() && distrust === null);
    age.querySelector("use").setAttribute("href", distrust === null && ms !== null ? "#shape-healthy" : "#shape-unknown");
    const words = ms === null ? "no data yet" : ageWords(live.aheadMs > 0 ? -live.aheadMs : ms);
    const shown = paused() ? `paused, ${words}` : words;
    if (text.textContent !== shown) text.textContent = shown;
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
  const age = ms === null ? "There are no numbers yet" : `These numbers are ${formatAge(ms)} old`;
  let text = "";
  link.hidden = true;
  if (live.link === "signed-out") {
    text = `You are signed out. ${age}.`;
    link.href = `/accounts/login/?next=${encodeURIComponent(location.pathname + location.search)}`;
    link.textContent = "Sign in again";
    link.hidden = false;
  } else if (live.link === "not-allowed") {
    text = "Your account may not see this fleet.";
  } else if (distrust === "link") {
    text = `${age}: the console does not answer.${retryWords(live)}`;
  } else if (distrust === "pollers") {
    text = `${age}: polling has stopped, so every agent reads as unknown.`;
  } else if (live.aheadMs > 0) {
    text = `The newest numbers are dated ${formatAge(live.aheadMs)} ahead of this console: the clocks of its workers and its web server differ, and the age of the numbers is unknown.`;
  }
  banner.hidden = text === "";
  const sentence = document.getElementById("banner-text");
  if (sentence.textContent !== text) sentence.textContent = text;
}

function retryWords(live) {
  if (live.retryAt === null) return " Trying to reach it.";
  return ` Next try in ${Math.max(1, Math.ceil((live.retryAt - performance.now()) / 1000))} s.`;
}

/** What the title and the icon of the tab say: how many are stranded, and that the numbers are too old to say. */
const tab = { stranded: 0, stale: false };

/** Carry the count of stranded agents in the title and the tab's icon. */
export function markTab(stranded) {
  tab.stranded = stranded;
  paintTab();
}

/** Mark the page, and its tab, as one whose numbers are too old. */
function markStale(stale) {
  document.documentElement.toggleAttribute("data-stale", stale);
  if (tab.stale === stale) return;
  tab.stale = stale;
  paintTab();
}

function paintTab() {
  const bare = document.title.replace(/^\((✖ [\d,]+|\? old numbers)\) /, "");
  const marked = tab.stale ? "(? old numbers) " : tab.stranded > 0 ? `(✖ ${formatCount(tab.stranded)}) ` : "";
  document.title = `${marked}${bare}`;
  const icon = document.getElementById("favicon");
  icon.dataset.calm ??= icon.getAttribute("href");
  const href = tab.stale ? markedIcon("?", colour("unknown")) : tab.stranded > 0 ? strandedIcon(tab.stranded) : icon.dataset.calm;
  if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
}

function strandedIcon(stranded) {
  return markedIcon(stranded > 99 ? "99+" : String(stranded), colour("stranded"));
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
  const words = theme === "system" ? "Colours: as the system" : `Colours: ${theme}`;
  button.setAttribute("aria-label", words);
  button.title = words;
}

function startTheme() {
  const button = document.getElementById("theme");
  if (button === null) return;
  showTheme(button, keptTheme());
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(keptTheme()) + 1) % THEMES.length];
    showTheme(button, next);
    try {
      localStorage.setItem("refloat.theme", next);
    } catch {
      // Storage is switched off: the choice lasts as long as the page.
    }
    document.dispatchEvent(new Event("themechange"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("themechange")));
}

/** Is the page dark, by choice or by the system? */
export function isDark() {
  const theme = keptTheme();
  return theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
}

function startMenu() {
  const menu = document.getElementById("user-menu");
  if (menu === null) return;
  document.addEventListener("click", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
}

/** Keep the entry of the present page in view, where the navigation is wider than the bar and scrolls in itself. */
function startNavigation() {
  const entry = document.querySelector(".nav [aria-current]");
  if (entry === null) return;
  const nav = entry.parentElement;
  // Not scrollIntoView: it would scroll the page as well.
  const observer = new ResizeObserver(() => {
    nav.scrollLeft = entry.offsetLeft + (entry.offsetWidth - nav.clientWidth) / 2;
  });
  // Entries grow as well: by a badge that comes later, or by larger text.
  for (const box of [nav, ...nav.children]) observer.observe(box);
}

/** Without an answer for this long a rendered page looks stale, whatever it was when it came. */
const STILL_STALE_MS = 30_000;
let stillZero = null;
let stillStale = false;

/** A page without a live link: take over the age that the server rendered; it grows before one's eyes. */
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
  if (ms !== null) document.getElementById("age-text").textContent = ageWords(ms);
}

startTheme();
startMenu();
startNavigation();
adoptAge();
adoptTimes(document);
setInterval(() => {
  tellTimes(document);
  tellAge();
}, 1_000);
