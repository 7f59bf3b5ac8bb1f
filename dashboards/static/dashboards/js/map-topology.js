/* The topology above the map, and on any page with live columns: proxies, groups of agents and auths, with the tunnels
   and auth connections between them. docs/reference/live.md, *Topology*.

   Nodes and edges are filters: selecting one dispatches "topology-filter" on the element, with the filter as an agent
   query in `detail.query` and its parts as `detail.proxy`, `.auth`, `.state` and `.group`; a part that is missing does
   not filter. An empty query: no filter. */

import { declareKeys } from "./keys.js";
import { throttled } from "./page.js";
import { FlowCounts } from "./topology-counts.js";
import { summarizeFailures } from "./topology-failures.js";
import { COLUMNS, buildFlow } from "./topology-flow.js";
import { arrangeFlow } from "./topology-layout.js";
import { paintTable, tableRows } from "./topology-table.js";
import { FlowView } from "./topology-view.js";

/** Minimum time between two updates. */
const PAINT_EVERY_MS = 250;
/** Padding of the frame, px: space for outlines. */
const FRAME_PADDING = 4;
const PARTS = ["proxy", "auth", "state", "group"];
const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

const SKELETON = `
  <div class="topology-head">
    <h2>Topology</h2>
    <p class="topology-summary"></p>
    <p class="topology-old">The data is old: tunnels and auth connections may have changed.</p>
    <ul class="topology-legend" aria-label="Legend: edges">
      <li><svg viewBox="0 0 34 10" aria-hidden="true"><path d="M1 5H33" class="legend-live"/></svg>live</li>
      <li><svg viewBox="0 0 34 10" aria-hidden="true"><path d="M1 5H33" class="legend-failing"/></svg>failing</li>
      <li class="topology-moving" hidden><svg viewBox="0 0 34 10" aria-hidden="true"><path d="M1 5H33" class="legend-moving"/></svg>moving</li>
      <li><svg viewBox="0 0 34 10" aria-hidden="true"><path d="M1 5H12M22 5H33" class="legend-lost"/></svg>lost</li>
    </ul>
    <button class="button topology-switch" type="button" aria-expanded="false"><svg class="glyph" aria-hidden="true"><use href="#glyph-table"/></svg>View topology as table</button>
  </div>
  <div class="topology-frame">
    <div class="flow-heads" aria-hidden="true"><span>Proxies</span><span></span><span>Auths</span></div>
    <div class="flow live"></div>
  </div>
  <div class="table-frame topology-table live" tabindex="0" role="region" aria-label="Table of the topology" hidden></div>`;

export class Topology {
  /**
   * element: where to show it; its content is replaced. feed: `live.state` (FleetState with columns), `instances` by
   * index, and the events "agents" (detail.kind, detail.changes of a delta) and "instances": MapData, for example.
   * isPaused: whether updates are paused; call `paint` after a pause. requestPaint: of a page that calls `paint` with
   * its other parts, so that all show the same moment; null: the topology paints by itself.
   */
  constructor(element, feed, { isPaused = () => false, requestPaint = null } = {}) {
    this.element = element;
    this.feed = feed;
    this.isPaused = isPaused;
    this.counts = new FlowCounts();
    this.isCounted = false;
    this.findGroups = null;
    this.grouped = null;
    this.filter = {};
    this.expanded = new Set();
    this.flow = null;
    this.places = null;
    /** Key of the node or edge that has the tab stop. */
    this.current = null;
    element.classList.add("topology");
    element.innerHTML = SKELETON;
    // What the page has below the topology keeps its place until the first data arrive.
    element.querySelector(".flow").style.height = `${element.dataset.height ?? 0}px`;
    this.frame = element.querySelector(".topology-frame");
    this.table = element.querySelector(".topology-table");
    this.view = new FlowView(element.querySelector(".flow"));
    this.requestPaint = requestPaint ?? throttled(() => this.paint(), PAINT_EVERY_MS);
    this.listen();
    this.recount();
  }

  listen() {
    this.feed.addEventListener("agents", ({ detail }) => this.receive(detail));
    // An agent may be in the group of its instance.
    this.feed.addEventListener("instances", () => (this.findGroups === null ? this.requestPaint() : this.recount()));
    const box = this.view.box;
    box.addEventListener("click", (event) => this.select(event.target.closest("[data-key]")?.dataset.key));
    declareKeys("Topology, while it has the focus", [
      ["← or →", "Connected instance or group in the next column"],
      ["↑ or ↓", "Previous or next entry of the column"],
      ["Home or End", "First or last entry of the column"],
      ["Enter", "Filter the map by the entry"],
      ["Esc", "Clear the filter"],
    ]);
    box.addEventListener("keydown", (event) => this.press(event));
    box.addEventListener("focusin", (event) => this.setCurrent(event.target.closest("[data-key]")?.dataset.key));
    this.element.querySelector(".topology-switch").addEventListener("click", () => this.toggleTable());
    new ResizeObserver(() => this.places !== null && this.frame.clientWidth !== this.drawnWidth && this.paint()).observe(this.frame);
  }

  /* Data */

  receive({ kind, changes }) {
    const columns = this.feed.live.state;
    const keys = this.findGroups?.()?.keys ?? null;
    const isKnown = this.isCounted && columns.states.length === this.agentCount && (keys?.length ?? 0) === (this.grouped?.keys.length ?? 0);
    if (kind === "delta" && isKnown) {
      this.counts.keys = keys;
      this.counts.update(columns, changes.map(([agent]) => agent));
      this.requestPaint();
    } else if (kind !== "counts") this.recount();
  }

  /** Count all agents: after a snapshot, when all are unknown, or with other groups. */
  recount() {
    const columns = this.feed.live.state;
    this.isCounted = columns.ready && columns.proxies !== null;
    if (!this.isCounted) return;
    this.agentCount = columns.states.length;
    const grouping = this.findGroups?.() ?? null;
    // Groups of an earlier layout have fewer agents: by state until the new ones arrive.
    this.grouped = grouping !== null && grouping.keys.length === this.agentCount ? grouping : null;
    this.counts.recount(columns, this.grouped?.keys ?? null);
    this.requestPaint();
  }

  /**
   * Group the agents. findGroups: returns { keys, describe, label }, as groupAgents() does, and the noun of the groups;
   * null groups them by state.
   */
  setGroups(findGroups) {
    this.findGroups = findGroups;
    if (this.isCounted) this.recount();
  }

  /** Show a filter that was selected elsewhere: { proxy, auth, state, group }; {} is no filter. */
  setFilter(filter) {
    this.filter = filter;
    this.requestPaint();
  }

  /* Painting */

  paint() {
    if (!this.isCounted || this.isPaused() || this.feed.instances.size === 0) return;
    const parts = { counts: this.counts, instances: this.feed.instances, grouping: this.grouped };
    this.element.hidden = false;
    this.flow = buildFlow({ ...parts, expanded: this.expanded });
    this.drawnWidth = this.frame.clientWidth;
    this.places = arrangeFlow(this.flow, this.drawnWidth - 2 * FRAME_PADDING);
    const hadFocus = this.view.box.contains(document.activeElement);
    this.view.paint(this.flow, this.places, {
      isPressed: (item) => this.isPressed(item),
      isFaded: (item) => this.isFaded(item),
    });
    this.frame.querySelector(".flow-heads").style.width = `${this.places.width}px`;
    this.frame.querySelector(".flow-heads").children[1].textContent = `Agents by ${this.grouped === null ? "state" : this.grouped.label ?? "group"}`;
    if (!this.view.elements.has(this.current)) this.setCurrent([...this.view.elements.keys()][0]);
    // The focused node or edge has no agents left.
    if (hadFocus && !this.view.box.contains(document.activeElement)) this.view.elements.get(this.current)?.focus();
    this.paintSummary();
    this.element.querySelector(".topology-moving").hidden = this.flow.edges.every(({ status }) => status !== "moving");
    if (!this.table.hidden) paintTable(this.table, tableRows(buildFlow({ ...parts, expanded: new Set(Object.keys(COLUMNS)) })));
    this.element.dataset.seq = String(this.feed.live.state.seq);
  }

  paintSummary() {
    const { failures } = this.flow;
    const text = summarizeFailures(failures);
    const summary = this.element.querySelector(".topology-summary");
    summary.toggleAttribute("data-failing", failures.length > 0);
    if (summary.textContent === text) return;
    summary.textContent = text;
    summary.title = text;
  }

  toggleTable() {
    this.table.hidden = !this.table.hidden;
    this.element.querySelector(".topology-switch").setAttribute("aria-expanded", String(!this.table.hidden));
    this.paint();
  }

  /* Selecting */

  isPressed({ filter }) {
    return filter !== null && PARTS.some((part) => filter[part] !== undefined) && PARTS.every((part) => filter[part] === this.filter[part]);
  }

  /** Whether a filter excludes all agents of a node or edge. */
  isFaded({ filter }) {
    return filter !== null && PARTS.some((part) => this.filter[part] !== undefined && filter[part] !== undefined && filter[part] !== this.filter[part]);
  }

  find(key) {
    return this.flow?.edges.find((edge) => edge.key === key) ?? Object.values(this.flow?.columns ?? {}).flat().find((node) => node.key === key);
  }

  /** Select a node or edge, or open or close a fold. Selecting it again removes the filter. */
  select(key) {
    const item = this.find(key);
    if (item === undefined) return;
    if (item.filter === null) {
      const column = item.isFold ? item.column : [item.from, item.to].find((end) => this.find(end)?.isFold).split(":")[0];
      if (!this.expanded.delete(column)) this.expanded.add(column);
      this.paint();
      return;
    }
    this.dispatch(this.isPressed(item) ? {} : item.filter);
  }

  dispatch(filter) {
    this.filter = filter;
    this.element.dispatchEvent(new CustomEvent("topology-filter", { bubbles: true, detail: { query: "", ...filter } }));
    this.paint();
  }

  /* Keyboard: one tab stop; arrows move between the columns of nodes and edges. */

  setCurrent(key) {
    const elements = this.view.elements;
    if (key === undefined || !elements.has(key)) return;
    elements.get(this.current)?.setAttribute("tabindex", "-1");
    this.current = key;
    elements.get(key).setAttribute("tabindex", "0");
  }

  /** Keys in five columns: proxies, tunnels, groups, auth connections, auths; each from top to bottom. */
  get lanes() {
    const { columns, edges } = this.flow;
    const [nodeKeys, edgeKeys] = [
      (column) => columns[column].map(({ key }) => key),
      (side) => edges.filter((edge) => edge.side === side).sort((one, other) => this.places.edges.get(one.key).y - this.places.edges.get(other.key).y).map(({ key }) => key),
    ];
    return [nodeKeys("proxy"), edgeKeys("proxy"), nodeKeys("group"), edgeKeys("auth"), nodeKeys("auth")];
  }

  press(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || this.flow === null) return;
    const arrow = ARROWS[event.key];
    if (arrow !== undefined) this.moveFocus(...arrow);
    else if (event.key === "Home" || event.key === "End") {
      const lane = this.lanes.find((keys) => keys.includes(this.current));
      this.focus(lane.at(event.key === "Home" ? 0 : -1));
    } else if (event.key === "Escape" && PARTS.some((part) => this.filter[part] !== undefined)) this.dispatch({});
    // A node is a button, which handles these keys itself.
    else if ((event.key === "Enter" || event.key === " ") && event.target.closest("g[role=button]") !== null) this.select(this.current);
    else return;
    event.preventDefault();
  }

  moveFocus(across, down) {
    const lanes = this.lanes;
    const lane = lanes.findIndex((keys) => keys.includes(this.current));
    if (across === 0) {
      this.focus(lanes[lane][lanes[lane].indexOf(this.current) + down]);
      return;
    }
    for (let next = lane + across; next >= 0 && next < lanes.length; next += across) {
      const connected = lanes[next].find((key) => this.isConnected(this.current, key));
      const target = connected ?? (next % 2 === 0 ? lanes[next][0] : undefined);
      if (target !== undefined) {
        this.focus(target);
        return;
      }
    }
  }

  isConnected(one, other) {
    const ends = (key) => {
      const item = this.find(key);
      return item.from === undefined ? [] : [item.from, item.to];
    };
    return ends(one).includes(other) || ends(other).includes(one);
  }

  focus(key) {
    if (key === undefined) return;
    this.setCurrent(key);
    this.view.elements.get(key).focus();
  }
}
