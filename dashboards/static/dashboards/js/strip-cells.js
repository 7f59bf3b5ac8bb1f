/* What a cell of a heat strip shows, in words and as a moment. Pure; times of buckets in ms since the epoch. */

import { formatBucket } from "./history-times.js";

const number = new Intl.NumberFormat("en");

/** Return the cells with stranded agents by row and bucket: [{ count, at }, ...]; `at`: the moment to show. */
export function indexCells(cells, { since, step }) {
  return cells.map((row) => new Map(row.map(([bucket, count, offset]) => [
    bucket,
    { count, at: since + bucket * step + offset * 1000 },
  ])));
}

/** Return the moment of a cell in ms, or null: nothing was recorded. `hasData`: by bucket. */
export function momentOf(cell, bucket, hasData, { since, until, step, now }) {
  if (!hasData[bucket]) return null;
  return cell?.at ?? Math.min(since + (bucket + 1) * step, until, now);
}

/** Return the states of an instance in a bucket: "not responding"; `spans`: [start, end, label] in seconds. */
export function statesOf(spans, bucket, { since, step }) {
  const start = since + bucket * step;
  const labels = spans
    .filter(([first, last]) => first * 1000 < start + step && last * 1000 >= start)
    .map(([, , label]) => label);
  return [...new Set(labels)].join(", ");
}

/** Return the lines that describe a cell: name, time, stranded agents, states. */
export function describeCell({ name, cell, spans, bucket, hasData, range }) {
  const agents = !hasData[bucket] ? "no data"
    : cell === undefined ? "no agent stranded"
      : `${number.format(cell.count)} agent${cell.count === 1 ? "" : "s"} stranded`;
  return [name, formatBucket(bucket, range), agents, statesOf(spans, bucket, range)].filter(Boolean);
}

/** Return where a key moves the cursor, { row, bucket }, or null: it does not move it. */
export function moveCursor(key, { row, bucket }, { rows, buckets }) {
  const moves = {
    ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
    PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -buckets], End: [0, buckets],
  };
  if (!(key in moves)) return null;
  const [down, right] = moves[key];
  return {
    row: Math.max(0, Math.min(rows - 1, row + down)),
    bucket: Math.max(0, Math.min(buckets - 1, bucket + right)),
  };
}
