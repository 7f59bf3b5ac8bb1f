/* The map: keeps the heat map, its marks, the legend and the cursor equal to the live state.
   Deltas only change bytes; one frame paints all deltas that arrived since the last one. */

import { HEALTHY, STATES, label } from "./fleet-state.js";
import { showHeadline } from "./headline.js";
import { Live } from "./live.js";
import { Panel, Tip, agentUrl } from "./map-inspect.js";
import { arrange, groupByHome, step } from "./map-layout.js";
import { Marks } from "./map-marks.js";
import { Plot, strandedByBlock } from "./map-plot.js";
import { announce, formatCount, isDark, showFreshness, throttled } from "./page.js";

/** Minimum time between two frames. */
const PAINT_EVERY_MS = 250;
/** Minimum height of the map, px. */
const HEIGHT_LEAST = 320;
/** Radius, px, in which a pointer and a finger select a mark near them. */
const REACH = 6;
const REACH_OF_A_FINGER = 16;

const { prefix, cluster } = document.body.dataset;
const byId = (id) => document.getElementById(id);
const map = byId("map");
const figure = JSON.parse(byId("figure").textContent);
const live = new Live({ prefix, cluster, cells: true });
const plot = new Plot(byId("plot"), figure);
const marks = new Marks(byId("marks"), figure);
const tip = new Tip(byId("tip"), prefix);
const panel = new Panel(byId("panel"), byId("panel-body"), prefix, () => close());

let layout = null;
let groups = [];
let grid = null;
let paused = false;
let cursor = null;
let chosen = null;
/** Slugs of the states selected in the legend; empty means all. */
const filter = new Set(new URLSearchParams(location.search).getAll("state").filter((slug) => STATES.includes(slug)));
const shown = (state) => filter.size === 0 || filter.has(STATES[state]);

/* Layout */

async function loadLayout() {
  const answer = await fetch(`${prefix}/map/layout.json`, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`the request for the map layout failed with status ${answer.status}`);
  layout = await answer.json();
  groups = groupByHome(layout.homes, layout.blocks);
  grid = null;
}

/** Load the layout that matches the state vector: the two arrive in separate responses. */
async function matchLayout() {
  if (layout?.version !== live.state.layoutVersion) {
    try {
      await loadLayout();
    } catch {
      byId("map-message").textContent = "The map could not be loaded. Retrying…";
      setTimeout(() => live.resync(), 2_000);
      return;
    }
  }
  if (live.state.ready && layout.ids.length !== live.state.states.length) {
    // Agents were added between the two responses.
    setTimeout(() => live.resync(), 500);
    return;
  }
  await redraw();
}

function fits() {
  return layout !== null && live.state.ready && layout.ids.length === live.state.states.length;
}

/** Arrange and redraw everything. */
async function redraw() {
  if (!fits()) return;
  byId("map-total").textContent = formatCount(layout.ids.length);
  const message = byId("map-message");
  message.hidden = layout.ids.length > 0;
  if (layout.ids.length === 0) {
    message.textContent = "No agents yet. Agents appear here after their first heartbeat.";
    return;
  }
  const room = window.innerHeight - map.getBoundingClientRect().top - window.scrollY - 48;
  grid = arrange(groups, layout.ids.length, map.clientWidth, Math.max(HEIGHT_LEAST, room));
  map.style.height = `${grid.rows * grid.cell}px`;
  marks.resize(grid);
  writeTitles();
  await plot.draw(grid, live.state.states, shown, isDark());
  paintOver();
  paintLegend();
}

function writeTitles() {
  const pitch = grid.cell;
  byId("titles").replaceChildren(...grid.blocks.map((block) => {
    const title = document.createElement("div");
    title.className = "block-title";
    title.style.left = `${block.x * pitch}px`;
    title.style.top = `${block.y * pitch - 19}px`;
    // The title may use the gap beside its block, but must stay on the page.
    title.style.width = `${Math.min((block.w + 1) * pitch, map.clientWidth - block.x * pitch)}px`;
    title.innerHTML = '<b></b><span class="block-bad" hidden><svg class="shape" aria-hidden="true"><use href="#shape-stranded"/></svg><span></span></span><span class="block-n"></span>';
    title.children[0].textContent = block.name;
    title.children[2].textContent = formatCount(block.agents.length);
    return title;
  }));
}

/* Painting */

async function paint() {
  if (paused || grid === null || !fits()) return;
  await plot.update(grid, live.state.states, shown);
  paintOver();
  paintLegend();
  map.dataset.seq = String(live.state.seq);
  map.dataset.epoch = live.state.epoch;
}

const requestPaint = throttled(paint, PAINT_EVERY_MS);

/** Paint everything above the cells. */
function paintOver() {
  if (grid === null || !fits()) return;
  const { states } = live.state;
  marks.paint({ grid, states, shown, dark: isDark(), cursor, chosen });
  const titles = byId("titles").children;
  strandedByBlock(grid, states).forEach((stranded, number) => {
    const bad = titles[number].children[1];
    bad.hidden = stranded === 0;
    bad.lastElementChild.textContent = formatCount(stranded);
  });
}

function paintLegend() {
  const { counts } = live;
  for (const chip of byId("legend").querySelectorAll("[data-state]")) {
    const slug = chip.dataset.state;
    // Until the first headline, the counts and the text are those that the server rendered.
    if (live.headline !== null) {
      const n = counts[slug] ?? 0;
      chip.querySelector("[data-count]").textContent = formatCount(n);
      chip.toggleAttribute("data-zero", n === 0);
    }
    chip.setAttribute("aria-pressed", String(filter.has(slug)));
  }
  byId("show-all").hidden = filter.size === 0;
}

/* Legend */

function applyFilter() {
  const query = new URLSearchParams([...filter].map((slug) => ["state", slug])).toString();
  const search = query === "" ? "" : `?${query}`;
  history.replaceState(null, "", location.pathname + search);
  byId("as-table").href = `${prefix}/agents/${search}`;
  paintLegend();
  requestPaint();
}

byId("legend").addEventListener("click", (event) => {
  const chip = event.target.closest("button");
  if (chip === null) return;
  const slug = chip.dataset.state;
  if (slug === undefined) filter.clear();
  else if (!filter.delete(slug)) filter.add(slug);
  if (paused) togglePause();
  applyFilter();
});

/* Pause (WCAG 2.2.2): the state keeps updating, the map does not. */

function togglePause() {
  paused = !paused;
  const button = byId("pause");
  button.setAttribute("aria-pressed", String(paused));
  button.querySelector("use").setAttribute("href", paused ? "#glyph-play" : "#glyph-pause");
  button.lastElementChild.textContent = paused ? "Resume updates" : "Pause updates";
  if (!paused) matchLayout();
}

byId("pause").addEventListener("click", togglePause);

/* Inspecting one agent */

function describe(agent) {
  const block = grid.blocks[grid.blockOf[agent]];
  return { id: layout.ids[agent], name: layout.names[agent], home: block.id === "" ? block.name : `home proxy: ${block.name}`, state: live.state.states[agent] };
}

/** Return the agent at the pointer: a marked one near it, otherwise the one under it. */
function agentAt(event) {
  const box = map.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const at = (px, py) => {
    const [column, row] = [Math.floor(px / grid.cell), Math.floor(py / grid.cell)];
    const inside = column >= 0 && row >= 0 && column < grid.cols && row < grid.rows;
    return inside ? grid.agentAt[row * grid.cols + column] : -1;
  };
  const under = at(x, y);
  const reach = event.pointerType === "touch" ? REACH_OF_A_FINGER : REACH;
  if (grid.cell >= 2 * reach || (under >= 0 && live.state.states[under] !== HEALTHY)) return under;
  let [nearest, distance] = [under, Infinity];
  for (let dy = -reach; dy <= reach; dy += grid.cell) {
    for (let dx = -reach; dx <= reach; dx += grid.cell) {
      const agent = at(x + dx, y + dy);
      const far = dx * dx + dy * dy;
      if (agent >= 0 && far < distance && figure.loud.includes(live.state.states[agent])) [nearest, distance] = [agent, far];
    }
  }
  return nearest;
}

map.addEventListener("pointermove", (event) => {
  if (grid === null || !fits()) return;
  const agent = agentAt(event);
  if (agent < 0) {
    tip.hide();
    return;
  }
  const box = map.getBoundingClientRect();
  tip.show(agent, describe(agent), { x: event.clientX - box.left, y: event.clientY - box.top, width: box.width });
});
map.addEventListener("pointerleave", () => tip.hide());
map.addEventListener("click", (event) => {
  if (grid === null || !fits()) return;
  const agent = agentAt(event);
  if (agent >= 0) open(agent);
});

function open(agent) {
  chosen = agent;
  cursor = agent;
  tip.hide();
  byId("panel").dataset.side = (grid.cellOf[agent] % grid.cols) * grid.cell > map.clientWidth / 2 ? "left" : "right";
  panel.open(layout.ids[agent]);
  paintOver();
}

function close() {
  panel.close();
  chosen = null;
  paintOver();
  map.focus();
}

/* Keyboard */

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** Return the next or previous agent, in reading order, that is not healthy and that the filter shows. */
function seek(direction) {
  const { states } = live.state;
  const length = grid.agentAt.length;
  const from = cursor === null ? (direction > 0 ? -1 : length) : grid.cellOf[cursor];
  for (let turn = 1; turn <= length; turn += 1) {
    const agent = grid.agentAt[(((from + direction * turn) % length) + length) % length];
    if (agent >= 0 && states[agent] !== HEALTHY && shown(states[agent])) return agent;
  }
  return null;
}

function moveTo(agent) {
  cursor = agent;
  paintOver();
  const { name, home, state } = describe(agent);
  announce(`${name}, ${label(state)}, ${home}`, { everyMs: 0 });
  const box = map.getBoundingClientRect();
  const y = box.top + Math.floor(grid.cellOf[agent] / grid.cols) * grid.cell;
  if (y < 0 || y > window.innerHeight - 40) window.scrollBy(0, y - window.innerHeight / 2);
}

map.addEventListener("keydown", (event) => {
  if (grid === null || !fits() || event.altKey || event.ctrlKey || event.metaKey) return;
  const arrow = ARROWS[event.key];
  if (arrow !== undefined) moveTo(cursor === null ? grid.blocks[0].agents[0] : step(grid, cursor, ...arrow));
  else if (event.key === "n" || event.key === "p") {
    const found = seek(event.key === "n" ? 1 : -1);
    if (found !== null) moveTo(found);
    else announce(filter.size === 0 ? "All agents are healthy" : "No agent in the selected states needs attention", { everyMs: 0 });
  } else if (event.key === "Enter" && cursor !== null) {
    if (chosen === cursor) location.href = agentUrl(prefix, layout.ids[cursor]);
    else open(cursor);
  } else if (event.key === "Escape" && chosen !== null) close();
  else return;
  event.preventDefault();
});

/* Wiring */

live.addEventListener("change", (event) => {
  const { kind, changes } = event.detail;
  if (kind === "snapshot" && !paused && (grid === null || layout?.version !== live.state.layoutVersion)) matchLayout();
  else requestPaint();
  const touched = kind !== "delta" || changes.some(([agent]) => agent === chosen);
  if (touched && chosen !== null) panel.changed();
});
document.addEventListener("themechange", redraw);

let drawnWidth = map.clientWidth;
new ResizeObserver(() => {
  // Only the width matters: the height is derived from it.
  if (map.clientWidth === drawnWidth) return;
  drawnWidth = map.clientWidth;
  redraw();
}).observe(map);

applyFilter();
showFreshness(live, { paused: () => paused });
showHeadline(live, { paintCounts: paintLegend, paused: () => paused });
live.start();
