/* Incidents and changes of a range: marks above the replay slider, and a list of links below it. */

import { formatSpan, groupMarkers, shareOf } from "./replay-range.js";

/** Width of a mark and minimum distance of two marks, px: a target that a finger hits. */
const MARK_PX = 24;
/** Lanes from top to bottom: field of markers.json, noun of several, and symbol. */
const LANES = [
  { field: "incidents", noun: "incidents", symbol: "▲" },
  { field: "changes", noun: "changes", symbol: "◆" },
];

function element(tag, className, text = "") {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}

function describe(marker) {
  return `${marker.title}, ${formatSpan(marker)}`;
}

function place(mark, share) {
  mark.style.left = `${(share * 100).toFixed(3)}%`;
  return mark;
}

export class ReplayMarkers {
  /** lanes: element above the slider; list: details below it. */
  constructor({ lanes, list }) {
    this.lanes = lanes;
    this.list = list;
    this.markers = { incidents: [], changes: [] };
    this.range = null;
    new ResizeObserver(() => this.paint()).observe(lanes);
  }

  /** Show the markers of a range: content of markers.json. */
  show(markers, range) {
    [this.markers, this.range] = [markers, range];
    this.paint();
    this.paintList();
  }

  paint() {
    if (this.range === null || this.lanes.clientWidth === 0) return;
    const focused = this.lanes.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    this.lanes.replaceChildren(...LANES.map((lane) => this.createLane(lane)));
    if (focused !== null) this.lanes.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  createLane({ field, noun, symbol }) {
    const lane = element("div", `replay-lane replay-${field}`);
    const markers = this.markers[field];
    for (const marker of markers) if (marker.end !== marker.start) lane.append(this.createSpan(marker));
    for (const { share, markers: together } of groupMarkers(markers, this.range, MARK_PX / this.lanes.clientWidth)) {
      lane.append(place(together.length === 1 ? this.createMark(together[0], symbol) : this.createGroup(together, noun), share));
    }
    return lane;
  }

  /** A line from the start to the end. */
  createSpan({ start, end, severity }) {
    const line = element("span", `replay-span severity-${severity || "info"}`);
    const from = shareOf(start, this.range);
    place(line, from).style.width = `${((shareOf(end ?? this.range.end, this.range) - from) * 100).toFixed(3)}%`;
    return line;
  }

  createMark(marker, symbol) {
    const mark = element(marker.href === "" ? "span" : "a", `replay-mark severity-${marker.severity || "info"}`, symbol);
    mark.title = describe(marker);
    if (marker.href === "") mark.setAttribute("role", "img");
    else mark.href = marker.href;
    mark.setAttribute("aria-label", describe(marker));
    return mark;
  }

  /** Several markers in one place: the button shows them in the list. */
  createGroup(markers, noun) {
    const worst = markers.some(({ severity }) => severity === "critical") ? "critical" : markers[0].severity || "info";
    const button = element("button", `replay-mark severity-${worst}`, String(markers.length));
    button.type = "button";
    button.setAttribute("aria-label", `${markers.length} ${noun} from ${formatSpan({ ...markers[0], end: markers.at(-1).start })}`);
    button.title = markers.slice(0, 8).map(describe).join("\n") + (markers.length > 8 ? `\nand ${markers.length - 8} more` : "");
    button.addEventListener("click", () => {
      this.list.open = true;
      const row = this.list.querySelector(`[data-key="${CSS.escape(markers[0].title)}"]`);
      row?.scrollIntoView({ block: "center" });
      row?.querySelector("a")?.focus();
    });
    return button;
  }

  paintList() {
    const all = [...this.markers.incidents, ...this.markers.changes].sort((first, second) => first.start - second.start);
    this.list.hidden = all.length === 0;
    this.list.querySelector("summary").textContent = `Incidents and changes in this range: ${all.length}`;
    this.list.querySelector("ul").replaceChildren(...all.map((marker) => {
      const row = element("li", "");
      row.dataset.key = marker.title;
      const name = element(marker.href === "" ? "b" : "a", "", marker.title);
      if (marker.href !== "") name.href = marker.href;
      row.append(name, ` ${formatSpan(marker)}`);
      return row;
    }));
  }
}
