/* Times of the replay slider: its range, its keys, and the places of markers. Pure; all times in ms since the epoch. */

const MINUTE_MS = 60_000;

/** Length of the ranges, and by how much a step of the playback moves in them. */
export const RANGES = {
  hour: { ms: 60 * MINUTE_MS, stepMs: 10_000 },
  day: { ms: 1_440 * MINUTE_MS, stepMs: MINUTE_MS },
  week: { ms: 10_080 * MINUTE_MS, stepMs: 10 * MINUTE_MS },
};

const KEY_STEPS_MS = {
  ArrowLeft: -MINUTE_MS,
  ArrowDown: -MINUTE_MS,
  ArrowRight: MINUTE_MS,
  ArrowUp: MINUTE_MS,
  PageDown: -10 * MINUTE_MS,
  PageUp: 10 * MINUTE_MS,
};

/** Return { start, end } of the range around a time: it ends now if that contains the time, otherwise the time is its middle. */
export function rangeAround(at, name, now) {
  const { ms } = RANGES[name];
  if (at >= now - ms) return { start: now - ms, end: now };
  return { start: at - ms / 2, end: at + ms / 2 };
}

/** Return the time to which a key moves the slider, or null: the key does not move it. */
export function moveByKey(key, at, { start, end }, now) {
  if (key === "Home") return start;
  if (key === "End") return Math.min(end, now);
  return key in KEY_STEPS_MS ? Math.min(at + KEY_STEPS_MS[key], now) : null;
}

/** Return where a time is in a range, 0 to 1; times outside of it are at its ends. */
export function shareOf(at, { start, end }) {
  return Math.max(0, Math.min(1, (at - start) / (end - start)));
}

/**
 * Return groups of markers, [{ share, markers }], in the order of time: markers that would overlap are one group.
 * markers: in the order of `start`; apart: minimum distance of two groups as a share of the range.
 */
export function groupMarkers(markers, range, apart) {
  const groups = [];
  for (const marker of markers) {
    const share = shareOf(marker.start, range);
    const last = groups.at(-1);
    if (last !== undefined && share - last.share < apart) last.markers.push(marker);
    else groups.push({ share, markers: [marker] });
  }
  return groups;
}

/** Return a time as text: "2026-11-23 10:14:07 UTC". */
export function formatUtc(at) {
  return `${new Date(at).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** Return the time of a marker as text: "2026-11-23 10:14:07 UTC to now"; a single time if it has no length. */
export function formatSpan({ start, end }) {
  if (end === start) return formatUtc(start);
  return `${formatUtc(start)} to ${end === null ? "now" : formatUtc(end)}`;
}

/** Return a moment as the value of `?at=`. */
export function formatMoment(at) {
  return new Date(at).toISOString();
}
