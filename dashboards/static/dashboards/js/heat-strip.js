/* A heat strip of instances over time: its cursor follows the mouse and the keyboard, and a cell leads to the map. */

import { hideTip, showTip } from "./chart-tip.js";
import { mapAddress } from "./history-times.js";
import { declareKeys } from "./keys.js";
import { announce } from "./page.js";
import { describeCell, indexCells, momentOf, moveCursor } from "./strip-cells.js";

/** Make a strip interactive. frame: its element; strip: its data; range, hasData (by bucket): of the page. */
export function startStrip(frame, strip, range, hasData, prefix) {
  const plot = frame.querySelector(".strip-plot");
  const mark = frame.querySelector(".strip-cursor");
  const cells = indexCells(strip.cells, range);
  const size = { rows: strip.names.length, buckets: hasData.length };
  const width = (range.until - range.since) / range.step;
  let cursor = null;
  // On a phone the strip scrolls: what is newest is in view first.
  frame.scrollLeft = frame.scrollWidth;

  const describe = ({ row, bucket }) => describeCell({
    name: strip.names[row], cell: cells[row].get(bucket), spans: strip.spans[row], bucket, hasData, range,
  });

  function place(next) {
    cursor = next;
    mark.hidden = next === null;
    if (next === null) return;
    mark.style.left = `${(100 * next.bucket) / width}%`;
    mark.style.width = `${(100 * Math.min(1, width - next.bucket)) / width}%`;
    mark.style.top = `${(100 * next.row) / size.rows}%`;
    mark.style.height = `${100 / size.rows}%`;
  }

  function cellAt(event) {
    const box = plot.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * size.rows);
    const bucket = Math.floor(((event.clientX - box.left) / box.width) * width);
    const isInside = row >= 0 && row < size.rows && bucket >= 0 && bucket < size.buckets;
    return isInside ? { row, bucket } : null;
  }

  function open({ row, bucket }) {
    const at = momentOf(cells[row].get(bucket), bucket, hasData, range);
    if (at === null) announce("No data was recorded in this cell: the map cannot be shown.", { everyMs: 0 });
    else location.assign(mapAddress(prefix, at, strip.queries[row]));
  }

  plot.addEventListener("pointermove", (event) => {
    const next = cellAt(event);
    place(next);
    if (next === null) hideTip();
    else showTip(describe(next), event.clientX, event.clientY);
  });
  plot.addEventListener("pointerleave", () => {
    if (document.activeElement !== frame) place(null);
    hideTip();
  });
  plot.addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (cell !== null) open(cell);
  });
  declareKeys("Heat strip, while it has the focus", [
    ["← ↑ ↓ →", "Move between cells"],
    ["Enter", "Open the map at that moment"],
  ]);
  frame.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== frame) return;
    if (event.key === "Enter" && cursor !== null) {
      open(cursor);
      return;
    }
    // The first key shows the cursor at the newest cell.
    const next = moveCursor(event.key, cursor ?? { row: 0, bucket: size.buckets }, size);
    if (next === null) return;
    event.preventDefault();
    place(next);
    mark.scrollIntoView({ block: "nearest", inline: "nearest" });
    const lines = describe(next);
    const box = mark.getBoundingClientRect();
    showTip(lines, box.right, box.bottom);
    announce(lines.join(", "), { everyMs: 0 });
  });
  frame.addEventListener("blur", () => {
    place(null);
    hideTip();
  });
  // On a narrow screen, the newest cells come first.
  frame.scrollLeft = frame.scrollWidth;
  plot.classList.add("strip-live");
  frame.setAttribute("role", "application");
  frame.setAttribute("aria-roledescription", "heat strip");
  frame.setAttribute("aria-label", `${frame.getAttribute("aria-label")}. Arrow keys move between cells, Enter opens the map at that moment`);
}
