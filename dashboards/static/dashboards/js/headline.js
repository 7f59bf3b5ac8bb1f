/* The headline on pages: the text, counts and title of one round, as the server made them (docs/reference/headline.md).
   Pages only paint them. While the data is not current, the page says so itself. */

import { announce, formatAge, interrupt, markTab, writeAttribute, writeText } from "./page.js";
import { Strandings } from "./stranding.js";

/** Maximum time from the first stranded agent to its cause: a round may find the agent before the cause. */
const CAUSE_COMES_WITHIN_MS = 2_500;

/** Maximum number of linked incidents. */
const MAX_INCIDENTS = 3;

/** What a page says while its data is not current, before the last known text. */
const OUTDATED = {
  link: "Out of date, because the console does not respond. Last known:",
  pollers: "Out of date, because polling has stopped. Last known:",
};

/** A line does not break between a number and its unit; as the filter `unbroken` of the server. */
const SPACE_BEFORE_UNIT = /(?<=\d) (?=(?:s|min|h)\b)/g;

/** A shorter remaining time is not named. */
const MIN_NAMED_S = 10;

/** Return the time until a moment: "in about 50 s", "in about 12 min"; as words.format_remaining of the server. */
export function formatRemaining(ms) {
  const s = ms / 1000;
  if (s <= 0) return "is due";
  if (s < MIN_NAMED_S) return `in less than ${MIN_NAMED_S} s`;
  if (s < 95) return `in about ${Math.round(s / 10) * 10} s`;
  return s < 5_700 ? `in about ${Math.round(s / 60)} min` : `in about ${Math.round(s / 3600)} h`;
}

/** Return how long it is to the deadline and to the recovery, `elapsedMs` after the end of the headline's round. */
export function describeRemaining({ as_of, strands_at, recovers_at }, elapsedMs) {
  const moments = [["First stranding", strands_at], ["Recovery", recovers_at]].filter(([, at]) => at);
  return moments.map(([subject, at]) => `${subject} ${formatRemaining(Date.parse(at) - Date.parse(as_of) - elapsedMs)}.`).join(" ");
}

function link(href, text) {
  const element = document.createElement("a");
  element.href = href;
  element.textContent = text;
  return element;
}

/** Paint the actions that the user may take, and the incidents. */
function paintActions(place, { actions, preventions, causes, links }, permissions) {
  const prefix = document.body.dataset.prefix;
  const isAllowed = ({ permission }) => permissions.includes(permission);
  const parts = actions.filter(isAllowed).map(({ path, label }) => link(path, label));
  const incidents = causes.filter(({ incident }) => incident !== null).slice(0, MAX_INCIDENTS);
  parts.push(...incidents.map(({ incident, name }) => link(`${prefix}/incidents/${incident}/`, `Open incident ${incident} (${name})`)));
  parts.push(...links.map(({ path, label }) => link(path, label)));
  for (const { path, label } of preventions.filter(isAllowed)) {
    const prevention = document.createElement("span");
    prevention.className = "headline-prevention";
    prevention.append("To prevent the next failure: ", link(path, label));
    parts.push(prevention);
  }
  // Equal links stay: a click or the focus on one of them must not get lost.
  const fresh = document.createElement("p");
  fresh.append(...parts);
  if (fresh.innerHTML !== place.innerHTML) place.replaceChildren(...fresh.childNodes);
}

/** Paint the number of causes after the first one. */
function paintMore(place, { more_count }) {
  const words = more_count === 0 ? "" : `and ${more_count} more cause${more_count === 1 ? "" : "s"}`;
  writeText(place, words);
  place.hidden = more_count === 0;
}

/** Return the text to announce: the start and the end of a change are news, its progress is not. */
function spokenText({ text, changes }) {
  return changes.filter(({ is_running }) => is_running).reduce((spoken, { kind, number, text: sentence }) => spoken.replace(sentence, `${kind[0].toUpperCase()}${kind.slice(1)} ${number} is in progress.`), text);
}

/** Announce the headline to screen readers; a new stranding interrupts them. */
function tell(live, strandings) {
  const { headline, distrust } = live;
  if (headline === null || distrust !== null || document.hidden) return;
  if (live.isSuspended) {
    announce(spokenText(headline));
    return;
  }
  const strandingKeys = headline.causes.filter((cause) => cause.counts.stranded > 0).map(({ key }) => key);
  if (strandings.isNews(headline.counts.stranded ?? 0, strandingKeys, performance.now())) interrupt(headline.text);
  else announce(spokenText(headline));
}

/**
 * Show the headline of a live page: now, and whenever it changes or its data is no longer current. `paintCounts` paints
 * the counts in the same step, so that the page never shows the counts of one round and the text of another.
 */
export function showHeadline(live, { paintCounts, paused = () => false }) {
  const strandings = new Strandings({ settleMs: CAUSE_COMES_WITHIN_MS });
  const box = document.getElementById("headline");
  const [text, more, remaining, age, actions] = ["text", "more", "remaining", "age", "actions"].map((part) => document.getElementById(`headline-${part}`));
  const permissions = box.dataset.permissions.split(" ");
  // The message whose times count down, and when its round ended: the clock of the reader plays no part in it.
  let timed = null;
  let roundEndedAt = 0;
  const rendered = { state: box.className.match(/state-(\S+)/)[1], text: text.title, lead: text.textContent };
  const paint = () => {
    tell(live, strandings);
    if (document.hidden || paused()) return;
    const { distrust } = live;
    const message = live.headline ?? rendered;
    // The server says itself that polling has stopped.
    const isOutdated = distrust !== null && !(distrust === "pollers" && live.headline?.state === "unknown");
    const [shown, whole] = [message.lead, message.text].map((words) => (isOutdated ? `${OUTDATED[distrust]} ${words}` : words));
    const state = isOutdated ? "unknown" : message.state;
    writeText(text, shown);
    if (text.title !== whole) text.title = whole;
    writeAttribute(box, "class", `headline state-${state}`);
    writeAttribute(box.querySelector("use"), "href", `#shape-${state}`);
    // Until the first data, the age is the one that the server rendered. A replay leaves the present.
    if (distrust !== null || document.body.dataset.past !== undefined) writeText(age, "");
    else if (live.ageMs !== null) writeText(age, `Last poll ${formatAge(live.ageMs)} ago.`);
    if (live.headline === null) return;
    if (live.headline !== timed) [timed, roundEndedAt] = [live.headline, live.concludedAt ?? performance.now()];
    // A moment of a replay stands still.
    const left = isOutdated ? "" : describeRemaining(timed, live.isSuspended ? 0 : performance.now() - roundEndedAt).replace(SPACE_BEFORE_UNIT, "\u00a0");
    writeText(remaining, left);
    paintMore(more, live.headline);
    box.dataset.asOf = live.headline.as_of ?? "";
    paintActions(actions, live.headline, permissions);
    paintCounts();
    markTab(live.headline);
  };
  live.addEventListener("headline", paint);
  live.addEventListener("link", paint);
  document.addEventListener("visibilitychange", paint);
  setInterval(paint, 500);
  paint();
}
