/* Fleet now: live counts, status line and instances. */

import { HEADLINES, STATES } from "./fleet-state.js";
import { Live } from "./live.js";
import { announce, CLOCKS_DIFFER_MS, fetchPart, formatAge, formatCount, interrupt, markTab, showFreshness, swap, throttled } from "./page.js";
import { describeStatus } from "./status-line.js";
import { Strandings } from "./stranding.js";

/** Interval of requests for the instances without a hint: their ages come from the server. */
const INSTANCES_EVERY_MS = 10_000;
/** Minimum time between two requests for the instances: the hints of one incident arrive in a burst. */
const INSTANCES_AT_MOST_EVERY_MS = 1_000;

/** Time until the causes arrive after a change of the counts: they come with the instances. */
const CAUSE_COMES_WITHIN_MS = 2_500;
const strandings = new Strandings({ settleMs: CAUSE_COMES_WITHIN_MS });

const live = new Live({ ...document.body.dataset, cells: false });

function paintCounts() {
  const counts = live.state.counts;
  const retired = counts.retired ?? 0;
  const total = STATES.reduce((sum, slug) => sum + (counts[slug] ?? 0), 0) - retired;
  for (const slug of STATES) {
    const n = counts[slug] ?? 0;
    document.querySelector(`[data-count="${slug}"]`).textContent = formatCount(n);
    document.querySelector(`.tile[data-state="${slug}"]`).toggleAttribute("data-zero", n === 0);
    // Stranded and healthy always have a tile.
    const zero = document.querySelector(`[data-zero-state="${slug}"]`);
    if (zero !== null) zero.hidden = n > 0;
  }
  document.getElementById("total").textContent = formatCount(total);
  document.getElementById("total-retired").textContent = retired > 0 ? `, plus ${formatCount(retired)} retired` : "";
  paintShare(counts);
  markTab(counts.stranded ?? 0);
}

/** Paint the bar of shares: every state with at least one agent stays visible. */
function paintShare(counts) {
  for (const part of document.querySelectorAll("[data-share]")) {
    const n = counts[part.dataset.share] ?? 0;
    part.hidden = n === 0;
    part.style.flexGrow = String(n);
    part.style.minWidth = n > 0 ? "3px" : "0";
  }
}

function readCounts() {
  const counts = {};
  for (const part of document.querySelectorAll("[data-share]")) counts[part.dataset.share] = Number(part.dataset.n);
  return counts;
}

/** Return the current causes, as rendered by the server: the same causes as in incidents. */
function currentCauses() {
  return [...document.querySelectorAll("#causes [data-cause]")].map((cause) => ({
    key: cause.dataset.cause,
    description: cause.textContent,
    states: cause.dataset.states.split(" "),
  }));
}

/** Paint the status line: the most urgent state, its number of agents, and the causes. */
function paintStatusLine() {
  const counts = live.state.counts;
  const distrust = live.distrust;
  const causes = currentCauses();
  const { state, text } = describeStatus({
    counts, causes, headlines: HEADLINES, hasData: live.ageMs !== null, isStale: distrust !== null,
  });
  if (distrust === null && live.state.ready) {
    const strandingKeys = causes.filter(({ states }) => states.includes("stranded")).map(({ key }) => key);
    const news = strandings.isNews(counts.stranded ?? 0, strandingKeys, performance.now());
    if (news) interrupt(text);
    else announce(text);
  }
  const age = live.ageMs;
  const tail = age === null || distrust !== null ? "" : ` Last poll ${formatAge(age)} ago.`;
  writeStatus(state, text, tail);
}

function writeStatus(shape, text, tail) {
  const line = document.getElementById("status-line");
  if (line.querySelector("svg") === null) {
    line.innerHTML = '<span class="state"><svg class="shape" aria-hidden="true"><use/></svg> <span></span></span><span></span>';
  }
  const [verdict, rest] = line.children;
  verdict.className = `state state-${shape}`;
  verdict.querySelector("use").setAttribute("href", `#shape-${shape}`);
  verdict.lastElementChild.textContent = text;
  rest.textContent = tail;
}

/** Return the state of the live updates in words. An open link alone does not mean that new data arrives. */
function linkWords() {
  if (live.link === "open" && live.distrust === "pollers" && live.ageMs !== null) return "connected, but polling has stopped";
  if (live.link === "open" && live.distrust === "link") return "off, the console does not respond";
  return { connecting: "connecting", open: "on", waiting: "off, reconnecting", "signed-out": "signed out", "not-allowed": "not allowed" }[live.link];
}

function paintFoot() {
  const link = document.getElementById("link-state");
  link.textContent = `Live updates: ${linkWords()}`;
  link.toggleAttribute("data-stale", live.distrust !== null);
  if (live.state.ready) document.getElementById("interval").textContent = String(live.state.intervalMs / 1000);
  const age = live.ageMs;
  if (age !== null) {
    // The age is measured by the server; the browser's clock only turns it into a time of day.
    document.getElementById("as-of").textContent = `${new Date(Date.now() - age).toISOString().slice(11, 19)} UTC, ${formatAge(age)} ago`;
  }
}

function adoptBeats() {
  const now = performance.now();
  for (const beat of document.querySelectorAll("[data-heartbeat-ms]")) beat.zero = now - Number(beat.dataset.heartbeatMs);
}

/**
 * Paint the age of each heartbeat against its TTL. Heartbeats are sent after half the TTL, so 0.9 TTL is late. If newer
 * heartbeats would not be seen, only the age of the last one is shown; if it is dated in the future, the clock skew.
 */
function paintBeats() {
  const now = performance.now();
  for (const beat of document.querySelectorAll("[data-heartbeat-ms]")) {
    const ttl = Number(beat.dataset.ttlMs);
    const age = now - beat.zero;
    const unlisted = live.distrust === null && beat.hasAttribute("data-unlisted");
    const unseen = live.distrust !== null || unlisted || beat.closest("[data-state]").dataset.state === "unknown";
    const ahead = age < -CLOCKS_DIFFER_MS;
    beat.toggleAttribute("data-unseen", unseen);
    beat.toggleAttribute("data-late", !unseen && age > 0.9 * ttl);
    beat.querySelector(".beat-fill").setAttribute("width", String(Math.min(100, Math.max(0, (100 * age) / ttl))));
    beat.toggleAttribute("data-ahead", ahead);
    beat.querySelector(".beat-text").textContent = ahead
      ? `heartbeat dated ${formatAge(age)} in the future: the clocks of the instance and the console differ`
      : unseen
      ? `last heartbeat seen ${formatAge(age)} ago${unlisted ? "; Refloat gets no newer one from any auth" : ""}`
      : `heartbeat ${formatAge(age)} ago, expires after ${formatAge(ttl)}`;
  }
}

let fetchedAt = performance.now();
let fetchTimer = null;

async function fetchInstances() {
  fetchTimer = null;
  if (document.hidden || live.link === "signed-out") return;
  fetchedAt = performance.now();
  let fresh = null;
  try {
    fresh = await fetchPart(location.pathname, "instances");
  } catch {
    // The console is unreachable: the ages of the heartbeats keep growing.
  }
  if (fresh === null) return;
  swap(document.getElementById("instances"), fresh);
  adoptBeats();
  paintBeats();
  paintStatusLine();
}

function requestInstances() {
  if (fetchTimer !== null) return;
  fetchTimer = setTimeout(fetchInstances, Math.max(0, INSTANCES_AT_MOST_EVERY_MS - (performance.now() - fetchedAt)));
}

const paint = throttled(() => {
  paintCounts();
  paintStatusLine();
  paintFoot();
}, 250);

live.state.counts = readCounts();
paintCounts();
adoptBeats();
paintBeats();
live.addEventListener("change", paint);
live.addEventListener("change", requestInstances);
live.addEventListener("instances", requestInstances);
live.addEventListener("link", paintFoot);
setInterval(() => {
  if (document.hidden) return;
  paintBeats();
  paintFoot();
  paintStatusLine();
  if (performance.now() - fetchedAt > INSTANCES_EVERY_MS) requestInstances();
}, 500);
showFreshness(live);
live.start();
