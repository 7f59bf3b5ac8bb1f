/* The map: keeps blocks, cells, legend, card and address equal to the live data and to what the user chose.
   One frame paints everything that arrived since the last one. */

import { HEALTHY, NO_INSTANCE, STATES, label } from "./fleet-state.js";
import { showHeadline } from "./headline.js";
import { inflateText } from "./inflate.js";
import { Card, agentUrl } from "./map-card.js";
import { MapData } from "./map-data.js";
import { MapFlow } from "./map-flow.js";
import { LOCAL_GROUPINGS } from "./map-groupings.js";
import { Headers } from "./map-headers.js";
import { Input } from "./map-input.js";
import { rectOf } from "./map-layout.js";
import { Names } from "./map-names.js";
import { Overlay } from "./map-overlay.js";
import { Painter } from "./map-paint.js";
import { findProblems, summarize } from "./map-problems.js";
import { formatAddress, listQuery, parseAddress, parseIndices } from "./map-query.js";
import { Scene } from "./map-scene.js";
import { Search } from "./map-search.js";
import { Selection } from "./map-selection.js";
import { Replay } from "./map-replay.js";
import { fillTable } from "./map-table.js";
import { THEMES } from "./map-theme.js";
import { describeCounts } from "./map-words.js";
import { addMoment, pastMoment } from "./moment.js";
import { announce, formatCount, isDark, showFreshness, throttled, writeAttribute, writeText } from "./page.js";

/** Minimum time between two frames, and between two updates of what is written in words. */
const PAINT_EVERY_MS = 200;
const WORDS_EVERY_MS = 1_000;
/** Minimum height of the map, px, and the space below it. */
const HEIGHT_LEAST = 340;
const BELOW = 44;
/** Time until the map is shown without the names of instances. */
const NAMES_BY_MS = 2_000;

const { prefix, cluster } = document.body.dataset;
const byId = (id) => document.getElementById(id);
const [map, frame, picture] = [byId("map"), byId("map-frame"), byId("map-window")];
const looks = JSON.parse(byId("looks").textContent);
const data = new MapData({ prefix, cluster });
const { live } = data;
const ranks = looks.map(({ rank }) => rank);
const names = new Names(prefix, () => scene.paint());
const scene = new Scene({
  data, names, looks, frame, painter: new Painter(byId("cells"), looks), overlay: new Overlay(byId("overlay")), headers: new Headers(byId("titles"), ranks),
});
const card = new Card(byId("card-body"), { prefix, names, ranks, onProblem: showProblem });
const search = new Search(prefix, byId("search"), byId("search-result"), () => refilter());
const selection = new Selection(byId("selection"), {
  prefix,
  names,
  onClear() {
    clear();
    returnFocus();
  },
});

const address = parseAddress(location.search);
const filter = new Set(address.states);
let isTable = address.isTable;
let paused = false;
let hovered = { cell: null, number: null };
let isSelectionPending = address.selection !== "";
let startedAt = performance.now();

/* Data */

function isReady() {
  return live.state.ready && live.state.proxies !== null && (data.instances.size > 0 || performance.now() - startedAt > NAMES_BY_MS);
}

function hasFilter() {
  return filter.size > 0 || search.bits !== null || data.place.proxy !== null || data.place.auth !== null;
}

function isShown(agent, state) {
  return (filter.size === 0 || filter.has(STATES[state])) && search.matches(agent) && data.isShown(agent);
}

/** Take over the newest data and paint it: topology, map and words of one moment. */
function paint() {
  flow.paint();
  if (paused || !isReady() || (scene.remote === null && !LOCAL_GROUPINGS.includes(scene.group))) return;
  const hasAgents = scene.update(hasFilter() ? isShown : null);
  const message = byId("map-message");
  message.hidden = hasAgents;
  map.closest(".map-area").toggleAttribute("data-empty", !hasAgents);
  if (!hasAgents) message.textContent = "No agents yet. Agents appear here after their first heartbeat.";
  map.style.height = `${scene.layout.height}px`;
  if (isSelectionPending) restoreSelection();
  scene.paint();
  problems = findProblems(live.state, data.instances, live.headline?.causes);
  paintLegend();
  writeWords();
  showCard();
  [map.dataset.seq, map.dataset.epoch] = [String(live.state.seq), live.state.epoch];
  if (performance.getEntriesByName("map-painted").length === 0) performance.mark("map-painted");
  if (receivedAt !== null) performance.measure("map-update", { start: receivedAt });
  receivedAt = null;
}

let receivedAt = null;
let problems = [];
const requestPaint = throttled(paint, PAINT_EVERY_MS);
const refilter = () => {
  flow.follow(filter);
  saveAddress();
  requestPaint();
};

function resize() {
  const width = frame.clientWidth;
  const room = window.innerHeight - frame.getBoundingClientRect().top - window.scrollY - BELOW;
  const height = Math.floor(Math.max(HEIGHT_LEAST, Math.min(room, window.innerHeight - 120)));
  if (width === 0) return;
  frame.style.height = `${height}px`;
  picture.style.height = `${height}px`;
  scene.resize(width, height, { dark: isDark(), ...THEMES[isDark() ? "dark" : "light"] });
  paint();
}

/* Groups */

async function setGroup(group) {
  byId("group").value = group;
  let remote = null;
  if (!LOCAL_GROUPINGS.includes(group)) {
    scene.setGroup(group, null);
    remote = await fetchGroups(group);
    if (scene.group !== group) return;
    if (remote === null) {
      setGroup("proxy");
      return;
    }
  }
  scene.setGroup(group, remote);
  flow.setGroup(byId("group").selectedOptions[0]?.textContent);
  frame.scrollTop = 0;
  saveAddress();
  paint();
}

async function fetchGroups(group) {
  try {
    const answer = await fetch(addMoment(`${prefix}/map/groups.json?by=${encodeURIComponent(group)}`), { headers: { Accept: "application/json" } });
    if (!answer.ok || answer.redirected) throw new Error(`status ${answer.status}`);
    const content = await answer.json();
    return { groups: content.groups, column: new Uint16Array(await inflateText(content.column)) };
  } catch {
    announce("The groups could not be loaded. The map is grouped by current proxy.", { everyMs: 0 });
    return null;
  }
}

byId("group").addEventListener("change", (event) => setGroup(event.target.value));

/** Say what the source of the fleet does not report; without proxies, group by auth unless the user chose a grouping. */
function checkPlaces() {
  const { states, proxies, auths } = live.state;
  let unplaced = 0;
  for (let agent = 0; agent < states.length; agent += 1) unplaced += proxies[agent] === NO_INSTANCE && auths[agent] !== NO_INSTANCE && states[agent] === HEALTHY;
  const note = byId("map-note");
  note.hidden = unplaced === 0;
  note.textContent = `The source of this fleet does not report which proxy holds the tunnels of ${formatCount(unplaced)} agents. Group by auth or by state.`;
  if (unplaced > states.length / 2 && address.group === "" && scene.group === "proxy") setGroup("auth");
}

/* Words: legend, summary, table, card */

function paintLegend() {
  const { counts } = live;
  for (const chip of byId("legend").querySelectorAll("[data-state]")) {
    // Until the first headline, the counts and the text are those that the server rendered.
    if (live.headline !== null) {
      const n = counts[chip.dataset.state] ?? 0;
      writeText(chip.querySelector("[data-count]"), formatCount(n));
      chip.toggleAttribute("data-zero", n === 0);
    }
    writeAttribute(chip, "aria-pressed", String(filter.has(chip.dataset.state)));
  }
  const place = [data.place.proxy, data.place.auth].filter((index) => index !== null).map((index) => data.nameOf(index) || "none known");
  byId("place").hidden = place.length === 0;
  writeText(byId("place-name"), place.join(" and "));
  byId("show-all").hidden = !hasFilter();
  writeText(byId("map-total"), formatCount(live.state.states?.length ?? 0));
}

const writeWords = throttled(() => {
  if (!scene.isReady) return;
  const groupLabel = byId("group").selectedOptions[0]?.textContent ?? "";
  const text = summarize({ problems, blocks: scene.blocks, total: live.state.states.length, groupLabel, perCell: scene.layout.perCell });
  writeText(byId("map-summary"), text);
  byId("per-cell").hidden = scene.layout.perCell === 1;
  byId("per-cell").textContent = `1 cell = ${formatCount(scene.layout.perCell)} agents; its inner square has the most urgent state`;
  byId("zoom-out").disabled = scene.zoom === 0;
  if (isTable) fillTable(byId("table-body"), scene.blocks);
  search.refresh();
}, WORDS_EVERY_MS);

/** Show what the pointer is on, otherwise the cursor, otherwise what needs attention. */
function showCard() {
  if (!scene.isReady) return;
  const cell = hovered.cell ?? (hovered.number === null && scene.cursor !== null ? scene.cellOf(scene.cursor) : null);
  const number = cell?.number ?? hovered.number;
  const block = number === null ? undefined : scene.blocks[number];
  if (block === undefined) card.showOverview(problems, live.headline?.changes ?? []);
  else if (cell === null) card.showBlock(block);
  else showCell(block, cell);
}

function showCell(block, cell) {
  const agents = scene.agentsIn(cell);
  if (agents.length === 0) card.showBlock(block);
  else if (scene.layout.perCell > 1) card.showCell(block, cell.cell, agents, scene.model.states);
  else card.showAgent(agents[0], scene.model.states[agents[0]], block);
}

/** Show the agents that a problem affects: the block of its instance, in a grouping that has one. */
async function showProblem({ key, kind }) {
  const hasBlock = scene.blocks.some(({ instance }) => instance?.index === key);
  if (!hasBlock) await setGroup(kind === "proxy" || kind === "auth" ? kind : "cause");
  const number = scene.blocks.findIndex((block) => block.instance?.index === key || (scene.group === "cause" && block.key === key));
  selectBlock(number);
}

/** Show a block and select its agents; nothing if the map has no block with this number. */
function selectBlock(number) {
  if (number < 0) return;
  scene.reveal(scene.layout.blocks[number]);
  const agents = scene.blocks[number].slots.filter((agent) => agent >= 0);
  if (agents.length > 0) actions.select(agents, false);
}

/* What the user does */

function restoreSelection() {
  isSelectionPending = false;
  if (address.epoch !== live.state.epoch) return;
  actions.select(parseIndices(address.selection, live.state.states.length), false);
}

function clear() {
  scene.selected = new Set();
  scene.cursor = null;
  selection.set([]);
  selection.show(scene.blocks);
  hovered = { cell: null, number: null };
  saveAddress();
  scene.paintOver();
  showCard();
}

async function announceCursor(agent) {
  const { number, cell } = scene.cellOf(agent);
  const block = scene.blocks[number];
  if (scene.layout.perCell > 1) {
    const counts = new Int32Array(STATES.length);
    for (const each of scene.agentsIn({ number, cell })) counts[scene.model.states[each]] += 1;
    announce(`${block.name}: ${describeCounts(counts, ranks)}`, { everyMs: 0 });
    return;
  }
  const found = await names.all([agent]);
  if (scene.cursor === agent) announce(`${found?.[0].name ?? "Agent"}, ${label(scene.model.states[agent])}, ${block.name}`, { everyMs: 0 });
}

const actions = {
  hover(cell, number) {
    hovered = { cell, number };
    showCard();
  },
  place(agent) {
    scene.cursor = agent;
    hovered = { cell: null, number: null };
    const { number, cell } = scene.cellOf(agent);
    scene.reveal(rectOf(scene.layout, number, cell));
    scene.paintOver();
    showCard();
    announceCursor(agent);
  },
  select(agents, isAdded) {
    selection.set(agents, isAdded);
    scene.selected = selection.agents;
    selection.show(scene.blocks);
    scene.paintOver();
    saveAddress();
    announce(`${formatCount(selection.agents.size)} selected`, { everyMs: 0 });
  },
  open(agent) {
    names.all([agent]).then((found) => {
      if (found !== null) location.href = agentUrl(prefix, found[0].id);
    });
  },
  zoom(steps, agent) {
    const anchor = agent ?? scene.cursor;
    const before = anchor === null ? null : rectAt(anchor).y - frame.scrollTop;
    if (steps === Infinity) while (scene.layout.perCell > 1) zoomBy(1);
    else zoomBy(steps);
    if (before !== null) frame.scrollTop = rectAt(anchor).y - before;
    map.style.height = `${scene.layout.height}px`;
    if (before !== null) frame.scrollTop = rectAt(anchor).y - before;
    saveAddress();
    scene.paint();
    writeWords();
    showCard();
  },
  /** Move to the next or previous agent, in reading order, that is not healthy and that the filter shows. */
  seek(direction) {
    const order = [...scene.inOrder()];
    const from = scene.cursor === null ? (direction > 0 ? -1 : order.length) : order.indexOf(scene.cursor);
    for (let turn = 1; turn <= order.length; turn += 1) {
      const agent = order[(((from + direction * turn) % order.length) + order.length) % order.length];
      if (scene.model.states[agent] === HEALTHY || scene.isFaded(agent)) continue;
      actions.place(agent);
      return;
    }
    announce(hasFilter() ? "No agent that the filter shows needs attention" : "All agents are healthy", { everyMs: 0 });
  },
  clear,
  focusSearch: () => byId("search").focus(),
};

function rectAt(agent) {
  const { number, cell } = scene.cellOf(agent);
  return rectOf(scene.layout, number, cell);
}

function zoomBy(steps) {
  scene.zoom = Math.max(0, scene.zoom + Math.max(steps, -scene.zoom));
  scene.arrange();
}

new Input(map, scene, actions);
const flow = new MapFlow(byId("topology"), {
  data,
  scene,
  isPaused: () => paused,
  requestPaint,
  showStates(slugs) {
    filter.clear();
    for (const slug of slugs) filter.add(slug);
    if (paused) togglePause();
    refilter();
    paintLegend();
  },
  showBlock: (key) => selectBlock(scene.blocks.findIndex((block) => block.key === key)),
  hideBlock: clear,
});
byId("zoom-in").addEventListener("click", () => scene.isReady && actions.zoom(1, null));
byId("zoom-out").addEventListener("click", () => scene.isReady && actions.zoom(-1, null));

/** Move the focus to the map from a button that is about to disappear: otherwise the next Tab begins at the top of the page. */
function returnFocus() {
  map.focus({ preventScroll: true });
}

byId("legend").addEventListener("click", (event) => {
  const chip = event.target.closest("button");
  if (chip === null) return;
  const slug = chip.dataset.state;
  if (slug === undefined) returnFocus();
  if (chip.id === "show-all") showAll();
  else if (chip.id === "place") data.show({ ...data.place });
  else if (!filter.delete(slug)) filter.add(slug);
  if (paused) togglePause();
  refilter();
  paintLegend();
});

function showAll() {
  filter.clear();
  byId("search").value = "";
  search.run();
  if (data.place.proxy !== null || data.place.auth !== null) data.show({ ...data.place });
}

/** Pause (WCAG 2.2.2): the data keeps updating, the map does not. */
function togglePause() {
  paused = !paused;
  const button = byId("pause");
  button.setAttribute("aria-pressed", String(paused));
  button.querySelector("use").setAttribute("href", paused ? "#glyph-play" : "#glyph-pause");
  button.lastElementChild.textContent = paused ? "Resume updates" : "Pause updates";
  paint();
}

byId("pause").addEventListener("click", togglePause);

function showTable() {
  byId("as-table").setAttribute("aria-pressed", String(isTable));
  byId("table").hidden = !isTable;
  if (isTable) fillTable(byId("table-body"), scene.blocks);
}

byId("as-table").addEventListener("click", () => {
  isTable = !isTable;
  showTable();
  saveAddress();
  if (isTable) byId("table").scrollIntoView({ block: "nearest" });
});

function saveAddress() {
  const view = { states: [...filter], query: search.query, proxy: placeName("proxy"), auth: placeName("auth") };
  const chosen = isSelectionPending ? parseIndices(address.selection, 1e6) : scene.selected;
  const text = formatAddress({ ...view, group: scene.group, zoom: scene.zoom, epoch: live.state.epoch ?? address.epoch, selected: chosen, isTable });
  history.replaceState(null, "", addMoment(location.pathname + text));
  byId("list").href = addMoment(`${prefix}/agents/${listQuery(view)}`);
  replay.setPresentUrl(location.pathname + text);
}

/** Return the name of the place for the address: before the instances arrive, what the address had. */
function placeName(kind) {
  if (data.instances.size === 0) return address[kind];
  return data.place[kind] === null ? "" : data.nameOf(data.place[kind]);
}

/** Show the place that the address names, once the instances are known. */
function restorePlace() {
  const find = (kind) => [...data.instances.values()].find((instance) => instance.kind === kind && instance.name === address[kind])?.index ?? null;
  const place = { proxy: find("proxy"), auth: find("auth") };
  [address.proxy, address.auth] = ["", ""];
  if (place.proxy !== null || place.auth !== null) data.show(place);
}

/* Replay */

const replay = new Replay(byId("replay"), {
  prefix,
  load: (at, onArrival) => data.showMoment(at, onArrival),
  onMoment() {
    if (paused) togglePause();
    saveAddress();
    selection.show(scene.blocks);
    if (scene.remote !== null) refetchGroups(scene.group);
  },
});

/** Fetch the groups of another moment; until they arrive, those of the last one are shown. */
async function refetchGroups(group) {
  const remote = await fetchGroups(group);
  if (remote === null || scene.group !== group) return;
  scene.remote = remote;
  paint();
}

/* Wiring */

data.addEventListener("agents", ({ detail }) => {
  receivedAt ??= performance.now();
  if (detail.kind === "snapshot") performance.mark("map-data");
  if (detail.kind === "snapshot" && live.state.proxies !== null) checkPlaces();
  if (scene.isReady) requestPaint();
  else paint();
  card.refresh(detail.kind === "delta" ? new Set(detail.changes.map(([agent]) => agent)) : null);
});
data.addEventListener("instances", () => {
  if (address.proxy !== "" || address.auth !== "") restorePlace();
  // At once: the block of an instance that fails must look so in the round that finds it.
  paint();
});
data.addEventListener("place", refilter);
live.addEventListener("layout", () => scene.remote !== null && setGroup(scene.group));
document.addEventListener("themechange", resize);
frame.addEventListener("scroll", () => requestAnimationFrame(() => scene.paint()), { passive: true });
new ResizeObserver(resize).observe(frame.parentElement);
// The space of the map ends where the topology begins to need it.
new ResizeObserver(resize).observe(byId("topology"));
window.addEventListener("resize", resize);

byId("search").value = address.query;
scene.zoom = address.zoom;
showTable();
resize();
setGroup(address.group || "proxy");
if (address.query !== "") search.run();
if (pastMoment() === null) showFreshness(live, { paused: () => paused });
else live.suspend();
showHeadline(live, { paintCounts: paintLegend, paused: () => paused });
setTimeout(paint, NAMES_BY_MS + 50);
if (pastMoment() === null) data.start();
replay.start();

export { data, scene };
