/* Fleet now: counts, the sentence and the instances strip, kept live. */

import { STATES } from "./fleet-state.js";
import { Live } from "./live.js";
import { announce, fetchPart, formatAge, formatCount, interrupt, markTab, showFreshness, throttled } from "./page.js";
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
  const total = STATES.reduce((sum, slug) => sum + (counts[slug] ?? 0), 0);
  for (const slug of STATES) {
    const n = counts[slug] ?? 0;
    document.querySelector(`[data-count="${slug}"]`).textContent = formatCount(n);
    document.querySelector(`.tile[data-state="${slug}"]`).toggleAttribute("data-zero", n === 0);
  }
  document.getElementById("total").textContent = formatCount(total);
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

/** Cards of the strip whose instance is sick. */
function sickCards() {
  return [...document.querySelectorAll("#instances [data-instance]")].filter((card) => card.dataset.state in SICKNESS);
}

/** What a sick instance does, in a sentence. */
const SICKNESS = { silent: "does not answer", unhealthy: "is unhealthy", expired: "has expired" };

/** "proxy-1 does not answer and auth-2 is unhealthy", from the strip; empty when all are well. */
function sickWords(sick) {
  const shown = sick.slice(0, 3).map((card) => `${card.dataset.instance} ${SICKNESS[card.dataset.state]}`);
  if (sick.length > 3) shown.push(`${sick.length - 3} more are sick`);
  return shown.length < 2 ? shown.join("") : `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}

/** The verdict that matters most now, and what it is called for: shape, number, cause. */
function paintStatusLine() {
  const counts = live.state.counts;
  const distrust = live.distrust;
  const cards = sickCards();
  const sick = sickWords(cards);
  const worst = ["stranded", "at_risk", "unknown", "offline", "degraded"].find((slug) => counts[slug] > 0);
  let shape = "healthy";
  let text = "No stranded agents.";
  if (live.ageMs === null) {
    shape = "unknown";
    text = "Nothing polled yet.";
  } else if (distrust !== null) {
    shape = "unknown";
    text = "Nothing can be said of the agents now.";
  } else if (worst === "stranded") {
    shape = worst;
    text = `${formatCount(counts.stranded)} stranded${sick === "" ? "." : `: ${sick}.`}`;
  } else if (worst !== undefined) {
    shape = worst;
    text = `No stranded agents, but ${formatCount(counts[worst])} ${worst.replace("_", " ")}${sick === "" ? "." : `: ${sick}.`}`;
  } else if (sick !== "") {
    shape = "at_risk";
    text = `No stranded agents, but ${sick}.`;
  }
  if (distrust === null && live.state.ready) {
    const news = strandings.isNews(counts.stranded ?? 0, cards.map((card) => card.dataset.instance), performance.now());
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

function paintFoot() {
  const words = { connecting: "connecting", open: "on", waiting: "off, trying again", "signed-out": "signed out", "not-allowed": "not allowed" };
  document.getElementById("link-state").textContent = `Live updates: ${words[live.link]}`;
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
 * Of what we no longer see, it says only when we last did.
 */
function paintBeats() {
  const now = performance.now();
  for (const beat of document.querySelectorAll("[data-heartbeat-ms]")) {
    const ttl = Number(beat.dataset.ttlMs);
    const age = now - beat.zero;
    const unseen = live.distrust !== null || beat.closest("[data-state]").dataset.state === "unknown";
    beat.toggleAttribute("data-unseen", unseen);
    beat.toggleAttribute("data-late", !unseen && age > 0.9 * ttl);
    beat.querySelector(".beat-fill").setAttribute("width", String(Math.min(100, (100 * age) / ttl)));
    beat.querySelector(".beat-text").textContent = unseen
      ? `last heartbeat seen ${formatAge(age)} ago`
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
  const old = document.getElementById("instances");
  const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  old.replaceWith(fresh);
  if (focused !== null) fresh.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
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
