/* The topology as elements: a button per node above an SVG with a curve per edge. Elements are kept by key, so that they
   move to their new places, keep the focus, and only what changed is written. */

import { describeNumbers } from "./map-words.js";
import { writeAttribute, writeText } from "./page.js";
import { COLUMNS } from "./topology-flow.js";

const SVG = "http://www.w3.org/2000/svg";
/** Edges that are painted later are above the others. */
const LAYERS = ["unknown", "live", "moving", "failing", "lost"];
/** Width of the part of an edge that the pointer hits, px, and the width from which an edge has its number. */
const HIT_LEAST = 12;
const NUMBER_LEAST = 14;
/** Height of a node from which it has a second and a third line, px. */
const LINES = [44, 62];
/** Nodes narrower than this have no number beside their name if they have a second line, px. */
const NARROW = 160;
/** Plate under the symbol and the number of an edge: space before and after, and width of a digit, px. */
const [PLATE_BEFORE, PLATE_AFTER, DIGIT] = [12, 16, 8];
/** Nodes of this height have their text at the top, where it stays visible while the page scrolls, px. */
const TALL = 320;
/** Symbols of edges that are not live, from -5 to 5, by tone: those of the agents' states, as in cells and cards. */
const SYMBOLS = { "state-stranded": "M-5-5 5 5M5-5-5 5", "state-at_risk": "M0-5 5.5 4.5H-5.5Z", "state-offline": "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1-5 0M-3 0H3" };

/** Return a new SVG element. */
function draw(name, attributes = {}) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

export class FlowView {
  /** box: an empty element. */
  constructor(box) {
    this.box = box;
    this.svg = draw("svg", { class: "flow-edges", role: "group", "aria-label": "Tunnels and auth connections" });
    this.layers = Object.fromEntries(LAYERS.map((status) => [status, this.svg.appendChild(draw("g"))]));
    // Above all edges: an edge must not hide the number of another one.
    this.markLayer = this.svg.appendChild(draw("g", { "aria-hidden": "true" }));
    this.columns = Object.fromEntries(Object.entries(COLUMNS).map(([column, name]) => {
      const group = document.createElement("div");
      group.className = "flow-column";
      group.setAttribute("role", "group");
      group.setAttribute("aria-label", name);
      return [column, group];
    }));
    box.append(this.columns.proxy, this.svg, this.columns.group, this.columns.auth);
    /** Elements by key of the node or edge, with this key as `dataset.key`. */
    this.elements = new Map();
    /** Symbols and numbers by key of the edge. */
    this.marks = new Map();
  }

  /** Show a flow (topology-flow.js) in the places of topology-layout.js. isPressed, isFaded: of a node or an edge. */
  paint(flow, places, { isPressed, isFaded }) {
    this.box.style.width = `${places.width}px`;
    this.box.style.height = `${places.height}px`;
    writeAttribute(this.svg, "viewBox", `0 0 ${places.width} ${places.height}`);
    const old = new Set(this.elements.keys());
    for (const [column, nodes] of Object.entries(flow.columns)) {
      for (const [place, node] of nodes.entries()) {
        old.delete(node.key);
        const element = this.elements.get(node.key) ?? this.add(node.key, createNode(), this.columns[column], place);
        paintNode(element, node, places.nodes.get(node.key), isPressed(node));
        element.toggleAttribute("data-faded", isFaded(node));
      }
    }
    for (const edge of flow.edges) {
      old.delete(edge.key);
      const element = this.elements.get(edge.key) ?? this.add(edge.key, createEdge(), this.layers[edge.status]);
      const mark = this.marks.get(edge.key) ?? this.addMark(edge.key);
      paintEdge(element, mark, edge, places.edges.get(edge.key), isPressed(edge));
      for (const part of [element, mark]) part.toggleAttribute("data-faded", isFaded(edge));
    }
    for (const key of old) {
      this.elements.get(key).remove();
      this.elements.delete(key);
      this.marks.get(key)?.remove();
      this.marks.delete(key);
    }
  }

  addMark(key) {
    const mark = this.markLayer.appendChild(createMark());
    this.marks.set(key, mark);
    return mark;
  }

  /** Add an element before the one at a place of its parent: readers read the nodes of a column in their order. */
  add(key, element, parent, place = parent.children.length) {
    element.dataset.key = key;
    element.tabIndex = -1;
    parent.insertBefore(element, parent.children[place] ?? null);
    this.elements.set(key, element);
    return element;
  }
}

function createNode() {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "flow-node";
  button.innerHTML = '<span class="flow-text"><span class="flow-name"><svg class="shape" aria-hidden="true"><use/></svg><b></b><span class="flow-brief"></span></span>'
    + '<span class="flow-status"></span><span class="flow-load"></span></span>';
  return button;
}

function paintNode(button, node, { x, y, w, h }, pressed) {
  const [symbol, name, brief] = button.querySelector(".flow-name").children;
  writeAttribute(button, "class", `flow-node ${node.tone}`);
  button.toggleAttribute("data-failing", node.isFailing);
  button.toggleAttribute("data-fold", node.isFold);
  const lines = 1 + LINES.filter((least) => h >= least).length;
  writeAttribute(button, "data-lines", String(lines));
  const isNarrow = w < NARROW;
  button.toggleAttribute("data-narrow", isNarrow);
  button.toggleAttribute("data-tall", h >= TALL);
  button.style.transform = `translate(${x}px, ${y}px)`;
  button.style.width = `${w}px`;
  button.style.height = `${h}px`;
  symbol.classList.toggle("flow-hidden", node.symbol === "");
  writeAttribute(symbol.firstElementChild, "href", `#shape-${node.symbol}`);
  writeText(name, node.name);
  const hasNews = node.status !== "" && (!node.isOk || node.hasWork) && !node.isFold;
  // Without agents, the status is beside the name, and what is known of the instance below it.
  const isEmpty = hasNews && node.agents === 0 && lines > 1 && !isNarrow;
  button.toggleAttribute("data-empty", isEmpty);
  writeText(brief, briefOf(node, { isNews: isEmpty || (lines === 1 && hasNews), isNarrow }));
  // What is wrong with the instance comes first where not all fits.
  const words = isNarrow && hasNews ? "" : node.words;
  const status = [words && !hasNews ? "" : node.status, words].filter(Boolean).join(" · ");
  writeText(button.querySelector(".flow-status"), isEmpty ? node.numbers : status);
  writeText(button.querySelector(".flow-load"), isEmpty ? "" : node.numbers);
  writeAttribute(button, "aria-label", [node.name, node.status, node.words, node.numbers].filter(Boolean).join(", "));
  writeAttribute(button, "title", [node.name, node.status, node.numbers, node.note].filter(Boolean).join(" · "));
  if (node.isFold) writeAttribute(button, "aria-expanded", String(node.folded.size === 0));
  else writeAttribute(button, "aria-pressed", String(pressed));
}

/** Return what is beside the name: the agents; for isNews, what is wrong, which matters more. The name needs the space of a narrow node. */
function briefOf({ isFold, folded, status, agents }, { isNews, isNarrow }) {
  if (isFold && (folded.size === 0 || isNarrow)) return "";
  if (isNarrow) return isNews ? "" : agents.toLocaleString("en");
  return isNews ? status : describeNumbers(agents, null);
}

function createEdge() {
  const edge = draw("g", { role: "button" });
  edge.append(draw("title"), ...["flow-hit", "flow-base", "flow-strand"].map((part) => draw("path", { class: part })));
  return edge;
}

function createMark() {
  const mark = draw("g");
  mark.append(
    draw("rect", { class: "flow-plate", y: "-10", height: "20", rx: "10" }),
    draw("path", { class: "flow-symbol" }),
    draw("text", { class: "flow-number", "dominant-baseline": "central" }),
  );
  return mark;
}

function paintEdge(element, mark, edge, place, pressed) {
  const [title, hit, base, strand] = element.children;
  const [plate, symbol, number] = mark.children;
  const isLost = edge.status === "lost";
  writeAttribute(element, "class", `flow-edge ${edge.tone}`);
  writeAttribute(mark, "class", `flow-mark ${edge.tone}`);
  for (const part of [element, mark]) writeAttribute(part, "data-status", edge.status);
  writeText(title, edge.text);
  writeAttribute(element, "aria-label", edge.text);
  writeAttribute(element, "aria-pressed", String(pressed));
  for (const path of [hit, base, strand]) writeAttribute(path, "d", place.d);
  writeAttribute(hit, "stroke-width", String(Math.max(HIT_LEAST, place.thickness + 4)));
  for (const path of [base, strand]) writeAttribute(path, "stroke-width", String(place.thickness));
  const text = edge.failing > 0 || place.thickness >= NUMBER_LEAST ? edge.agents.toLocaleString("en") : "";
  const symbolPath = isLost || edge.status === "failing" ? SYMBOLS[edge.tone] ?? "" : "";
  const isMarked = symbolPath !== "";
  const [before, after] = [PLATE_BEFORE, PLATE_AFTER + text.length * DIGIT];
  // On the side of the auths, the curve runs to the left.
  const [gapStart, gap] = [place.along - (edge.side === "proxy" ? before : after), before + after];
  strand.style.strokeDasharray = isLost ? `${Math.max(0, gapStart)} ${gap} ${place.length}` : "";
  mark.style.transform = `translate(${place.x}px, ${place.y}px)`;
  writeAttribute(symbol, "d", symbolPath);
  writeAttribute(number, "x", isMarked ? "10" : "0");
  writeAttribute(number, "text-anchor", !isMarked && edge.side === "auth" ? "end" : "start");
  writeText(number, text);
  writeAttribute(plate, "x", String(-before));
  writeAttribute(plate, "width", isMarked ? String(gap) : "0");
}
