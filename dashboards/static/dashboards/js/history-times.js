/* Times and addresses of the History page. Pure; all times in ms since the epoch. */

const DAY_MS = 86_400_000;

/** Return the time of day, or the date and the time if a range is longer than a day: "Nov 23 10:14". */
export function formatTime(at, { since, until }) {
  const clock = new Date(at).toISOString().slice(11, 16);
  if (until - since <= DAY_MS) return clock;
  const date = new Intl.DateTimeFormat("en-US", { month: "short", day: "numeric", timeZone: "UTC" }).format(at);
  return `${date} ${clock}`;
}

/** Return start and end of a bucket as text: "10:14 to 10:19 UTC". */
export function formatBucket(bucket, range) {
  const start = range.since + bucket * range.step;
  return `${formatTime(start, range)} to ${formatTime(Math.min(start + range.step, range.until), range)} UTC`;
}

/** Return the address of the map at a moment; `query`: an agent query, or "". */
export function mapAddress(prefix, at, query) {
  const parameters = [`at=${new Date(at).toISOString()}`];
  if (query) parameters.push(`q=${encodeURIComponent(query)}`);
  return `${prefix}/map/?${parameters.join("&")}`;
}

/** Return the address of the map at the peak of the counts that start then. */
export function peakAddress(prefix, start) {
  return `${prefix}/map/?peak_of=${new Date(start).toISOString()}`;
}

/**
 * Return the query string of a range that the user chose: inside of the range of the page, at least `shortest` long, not
 * later than `now`.
 */
export function zoomQuery([first, second], { since, until, now, shortest }) {
  let start = Math.max(Math.min(first, second), since);
  let end = Math.min(Math.max(first, second), until, now);
  if (end - start < shortest) {
    const middle = (start + end) / 2;
    end = Math.min(Math.ceil(middle + shortest / 2), now);
    start = end - shortest;
  }
  return `?since=${new Date(Math.floor(start)).toISOString()}&until=${new Date(Math.floor(end)).toISOString()}`;
}

/** Return the points of stepped areas: each count above 0 holds for its bucket; a bucket with 0 or without data is a gap. */
export function stepPoints(counts, { since, until, step }) {
  const [x, y] = [[], []];
  counts.forEach((count, bucket) => {
    const start = since + bucket * step;
    if (count) {
      // From the base and back to it, so that each area has both sides.
      if (!counts[bucket - 1]) {
        x.push(start);
        y.push(0);
      }
      x.push(start, Math.min(start + step, until));
      y.push(count, count);
    } else if (counts[bucket - 1]) {
      x.push(start, start);
      y.push(0, null);
    }
  });
  return { x, y };
}

/** Return the middle of every bucket with data, and its number. */
export function bucketPoints(counts, { since, until, step }) {
  const buckets = [...counts.keys()].filter((bucket) => counts[bucket] !== null);
  return { x: buckets.map((bucket) => Math.min(since + (bucket + 0.5) * step, until)), buckets };
}
