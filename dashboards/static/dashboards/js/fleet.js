/* Fleet now: counts, the sentence and the instances strip, kept live. */

import { HEADLINES, STATES } from "./fleet-state.js";
import { Live } from "./live.js";
import { announce, CLOCKS_DIFFER_MS, fetchPart, formatAge, formatCount, interrupt, markTab, showFreshness, swap, throttled } from "./page.js";
import { Strandings } from "./stranding.js";

/** Ages of instances are told by the server: ask again this often even without a hint. */
const INSTANCES_EVERY_MS = 10_000;
/** Hints of one incident come in a burst. */
const INSTANCES_AT_MOST_EVERY_MS = 1_000;

/** The strip is asked for after the counts changed. */
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
  }
  document.getElementById("total").textContent = formatCount(total);
  document.getElementById("total-retired").textContent = retired > 0 ? `, and ${formatCount(retired)} retired` : "";
  paintShare(counts);
  markTab(counts.stranded ?? 0);
}

/** The fleet as one bar; what is there at all is at least visible. */
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

/** What the fleet suffers from, as the server has it: the causes that incidents are about. */
function sickCauses() {
  return [...document.querySelectorAll("#causes [data-cause]")];
}

/** "proxy-1 does not answer and auth-2 is unhealthy"; empty when all are well. */
function sickWords(causes) {
  const shown = causes.slice(0, 3).map((cause) => cause.textContent);
  const more = causes.length - shown.length;
  if (more > 0) shown.push(more === 1 ? "1 more is sick" : `${more} more are sick`);
  return shown.length < 2 ? shown.join("") : `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}

/** The verdict that matters most now, and what it is called for: shape, number, cause. */
function paintStatusLine() {
  const counts = live.state.counts;
  const distrust = live.distrust;
  const causes = sickCauses();
  const sick = sickWords(causes);
  const worst = HEADLINES.find(({ slug }) => counts[slug] > 0);
  let shape = "healthy";
  let text = "No stranded agents.";
  if (live.ageMs === null) {
    shape = "unknown";
    text = "Nothing polled yet.";
  } else if (distrust !== null) {
    shape = "unknown";
    text = "Nothing can be said of the agents now.";
  } else if (worst?.slug === "stranded") {
    shape = worst.slug;
    text = `${formatCount(counts.stranded)} stranded${sick === "" ? "." : `: ${sick}.`}`;
  } else if (worst !== undefined) {
    shape = worst.slug;
    text = `No stranded agents, but ${formatCount(counts[worst.slug])} ${worst.label}${sick === "" ? "." : `: ${sick}.`}`;
  } else if (sick !== "") {
    shape = "at_risk";
    text = `No stranded agents, but ${sick}.`;
  }
  if (distrust === null && live.state.ready) {
    const news = strandings.isNews(counts.stranded ?? 0, causes.map((cause) => cause.dataset.cause), performance.now());
    if (news) interrupt(text);
    else announce(text);
  }
  const age = live.ageMs;
  const tail = age === null || distrust !== null ? "" : ` Last poll ${formatAge(age)} ago.`;
  writeStatus(shape, text, tail);
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

/** How the link stands; one that is open says nothing while no new numbers come. */
function linkWords() {
  if (live.link === "open" && live.distrust === "pollers" && live.ageMs !== null) return "connected, but polling has stopped";
  if (live.link === "open" && live.distrust === "link") return "off, the console does not answer";
  return { connecting: "connecting", open: "on", waiting: "off, trying again", "signed-out": "signed out", "not-allowed": "not allowed" }[live.link];
}

function paintFoot() {
  const link = document.getElementById("link-state");
  link.textContent = `Live updates: ${linkWords()}`;
  link.toggleAttribute("data-stale", live.distrust !== null);
  if (live.state.ready) document.getElementById("interval").textContent = String(live.state.intervalMs / 1000);
  const age = live.ageMs;
  if (age !== null) {
    // The browser's clock only dresses an age that the server measured.
    document.getElementById("as-of").textContent = `${new Date(Date.now() - age).toISOString().slice(11, 19)} UTC, ${formatAge(age)} ago`;
  }
}

function adoptBeats() {
  const now = performance.now();
  for (const beat of document.querySelectorAll("[data-heartbeat-ms]")) beat.zero = now - Number(beat.dataset.heartbeatMs);
}

/**
 * Heartbeat age against the TTL: late from nine tenths on, for heartbeats come after half of it.
 * Of what we no longer see, it says only when we last did; of a heartbeat dated ahead, that clocks differ.
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
      ? `heartbeat dated ${formatAge(age)} ahead of the console: the clocks differ`
      : unseen
      ? `last heartbeat seen ${formatAge(age)} ago${unlisted ? "; no auth server lists newer ones" : ""}`
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
    // Unreachable: the age of the heartbeats goes on growing, which is the truth.
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
