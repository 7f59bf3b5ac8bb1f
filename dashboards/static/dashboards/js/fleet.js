/* Fleet now: headline, live counts, chart and instances. */

import { STATES } from "./fleet-state.js";
import { showHeadline } from "./headline.js";
import { Live } from "./live.js";
import { CLOCKS_DIFFER_MS, fetchPart, formatAge, formatCount, showFreshness, swap, writeAttribute, writeText } from "./page.js";

/** Interval of requests for the instances without a hint: their ages come from the server. */
const INSTANCES_EVERY_MS = 10_000;
/** Heartbeats are sent after about half the TTL: rows that are newer than this share of it never look expired. */
const INSTANCES_TTL_SHARE = 0.3;
/** Minimum time between two requests for the instances: the hints of one incident arrive in a burst. */
const INSTANCES_AT_MOST_EVERY_MS = 1_000;
/** Interval of requests for the chart while nothing changes: the server adds one minute at a time. */
const CHART_EVERY_MS = 60_000;
/** Minimum time between two requests for the chart: the counts that it ends with change with every poll of a failure. */
const CHART_AT_MOST_EVERY_MS = 5_000;

const live = new Live({ ...document.body.dataset, cells: false });

function paintCounts() {
  const counts = live.counts;
  const retired = counts.retired ?? 0;
  const total = STATES.reduce((sum, slug) => sum + (counts[slug] ?? 0), 0) - retired;
  for (const slug of STATES) {
    const n = counts[slug] ?? 0;
    writeText(document.querySelector(`[data-count="${slug}"]`), formatCount(n));
    document.querySelector(`.tile[data-state="${slug}"]`).toggleAttribute("data-zero", n === 0);
    // Stranded and healthy always have a tile.
    const zero = document.querySelector(`[data-zero-state="${slug}"]`);
    if (zero !== null) zero.hidden = n > 0;
  }
  writeText(document.getElementById("total"), formatCount(total));
  writeText(document.getElementById("total-retired"), retired > 0 ? `, plus ${formatCount(retired)} retired` : "");
  paintShare(counts);
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

/** Return the state of the live updates in words. An open link alone does not mean that new data arrives. */
function linkWords() {
  if (live.link === "open" && live.distrust === "pollers" && live.ageMs !== null) return "connected, but polling has stopped";
  if (live.link === "open" && live.distrust === "link") return "off, the console does not respond";
  return { connecting: "connecting", open: "on", waiting: "off, reconnecting", "signed-out": "signed out", "not-allowed": "not allowed" }[live.link];
}

function paintFoot() {
  const link = document.getElementById("link-state");
  writeText(link, `Live updates: ${linkWords()}`);
  link.toggleAttribute("data-stale", live.distrust !== null);
  if (live.state.ready) writeText(document.getElementById("interval"), String(live.state.intervalMs / 1000));
  const age = live.ageMs;
  if (age !== null) {
    // The age is measured by the server; the browser's clock only turns it into a time of day.
    writeText(document.getElementById("as-of"), `${new Date(Date.now() - age).toISOString().slice(11, 19)} UTC, ${formatAge(age)} ago`);
  }
}

/**
 * Paint the age of each heartbeat against its TTL. Heartbeats are sent after half the TTL, so 0.9 TTL is late. If newer
 * heartbeats would not be seen, only the age of the last one is shown; if it is dated in the future, the clock skew.
 */
function paintBeats() {
  const now = performance.now();
  for (const beat of document.querySelectorAll("[data-heartbeat-ms]")) {
    const ttl = Number(beat.dataset.ttlMs);
    // The server gives the age at its response.
    beat.sentAt ??= now - Number(beat.dataset.heartbeatMs);
    const age = now - beat.sentAt;
    const unlisted = live.distrust === null && beat.hasAttribute("data-unlisted");
    const unseen = live.distrust !== null || unlisted || beat.closest("[data-state]").dataset.state === "unknown";
    const ahead = age < -CLOCKS_DIFFER_MS;
    beat.toggleAttribute("data-unseen", unseen);
    beat.toggleAttribute("data-late", !unseen && age > 0.9 * ttl);
    writeAttribute(beat.querySelector(".beat-fill"), "width", Math.min(100, Math.max(0, (100 * age) / ttl)).toFixed(1));
    beat.toggleAttribute("data-ahead", ahead);
    const words = ahead
      ? `heartbeat dated ${formatAge(age)} in the future: the clocks of the instance and the console differ`
      : unseen
      ? `last heartbeat seen ${formatAge(age)} ago${unlisted ? "; Refloat gets no newer one from any auth" : ""}`
      : `heartbeat ${formatAge(age)} ago, ${age > ttl ? "expired" : "expires"} after ${formatAge(ttl)}`;
    writeText(beat.querySelector(".beat-text"), words);
  }
}

/** Return the interval of requests for the instances: the ages between two requests grow without new heartbeats. */
function instancesEveryMs() {
  const ttls = [...document.querySelectorAll("[data-heartbeat-ms]")].map((beat) => Number(beat.dataset.ttlMs));
  return Math.max(INSTANCES_AT_MOST_EVERY_MS, Math.min(INSTANCES_EVERY_MS, INSTANCES_TTL_SHARE * Math.min(...ttls)));
}

let fetchedAt = performance.now();
let fetchTimer = null;

async function fetchInstances() {
  fetchTimer = null;
  if (document.hidden || live.link === "signed-out") return;
  fetchedAt = performance.now();
  let fresh = null;
  try {
    fresh = await fetchPart(`${location.pathname}?part=instances`, "instances");
  } catch {
    // The console is unreachable: the ages of the heartbeats keep growing.
  }
  if (fresh === null) return;
  swap(document.getElementById("instances"), fresh);
  paintBeats();
}

function requestInstances() {
  if (fetchTimer !== null) return;
  fetchTimer = setTimeout(fetchInstances, Math.max(0, INSTANCES_AT_MOST_EVERY_MS - (performance.now() - fetchedAt)));
}

let chartFetchedAt = performance.now() - CHART_AT_MOST_EVERY_MS;
/** The counts that the chart ends with. */
let chartCounts = "";
const drawnCounts = () => `${live.counts.stranded ?? 0} ${live.counts.at_risk ?? 0}`;

/** Fetch the chart again; an open table stays open. */
async function fetchChart() {
  if (live.link === "signed-out") return;
  chartFetchedAt = performance.now();
  chartCounts = drawnCounts();
  let fresh = null;
  try {
    fresh = await fetchPart(location.pathname, "fleet-chart");
  } catch {
    // The console is unreachable: the chart ends at the time of the last request.
  }
  if (fresh !== null) swap(document.getElementById("fleet-chart"), fresh);
}

live.state.counts = readCounts();
chartCounts = drawnCounts();
paintCounts();
paintBeats();
live.addEventListener("change", paintFoot);
live.addEventListener("change", requestInstances);
live.addEventListener("instances", requestInstances);
live.addEventListener("link", paintFoot);
setInterval(() => {
  if (document.hidden) return;
  paintBeats();
  paintFoot();
  if (performance.now() - fetchedAt > instancesEveryMs()) requestInstances();
  const hasNewCounts = live.distrust === null && drawnCounts() !== chartCounts;
  if (performance.now() - chartFetchedAt > (hasNewCounts ? CHART_AT_MOST_EVERY_MS : CHART_EVERY_MS)) fetchChart();
}, 500);
showFreshness(live);
showHeadline(live, { paintCounts });
live.start();
