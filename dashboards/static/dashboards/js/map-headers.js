/* Headers of blocks: HTML above the canvas, so that they are text. Only those near the visible part exist. */

import { STATES, STRANDED } from "./fleet-state.js";
import { describeBlock, describeLoad, describeState, loadParts, looksOf } from "./map-words.js";

const AT_RISK = STATES.indexOf("at_risk");
/** Distance from the visible part, px, within which headers exist. */
const MARGIN = 400;
const number = new Intl.NumberFormat("en");

/** The elements of a header. They stay, and only what differs is written: hundreds of headers change in one frame. */
const PARTS = `<span class="block-row"><span class="block-symbol"><svg class="shape" aria-hidden="true"><use/></svg></span><b></b><span
class="block-state"></span></span><span class="block-row"><span class="block-stranded"><svg class="shape" aria-hidden="true"><use
href="#shape-stranded"/></svg><span></span></span><span class="block-risk"><svg class="shape" aria-hidden="true"><use
href="#shape-at_risk"/></svg><span></span></span><span class="block-load"></span></span>`;

/** Set a property of an element, if it differs. */
function set(element, property, value) {
  if (element[property] !== value) element[property] = value;
}

/** Write texts into an element, those after the first one into elements of their own, which the style can leave out. */
function writeParts(element, [first, ...others], tag) {
  if (element.textContent === [first, ...others].join("")) return;
  element.replaceChildren(first, ...others.map((text) => Object.assign(document.createElement(tag), { textContent: text })));
}

function createHeader(key) {
  const header = document.createElement("div");
  header.dataset.key = String(key);
  header.innerHTML = PARTS;
  const find = (name) => header.querySelector(name);
  header.parts = { symbol: find(".block-symbol"), name: find("b"), state: find(".block-state"), stranded: find(".block-stranded"), risk: find(".block-risk"), load: find(".block-load") };
  return header;
}

function write({ parts }, block, isFull) {
  const { instance, counts } = block;
  const state = instance === null ? "OK" : describeState(instance);
  const isOk = state === "OK";
  set(parts.name, "textContent", block.name);
  set(parts.symbol, "hidden", isOk);
  set(parts.state, "hidden", isOk || !isFull);
  if (!isOk) {
    const looks = looksOf(instance);
    set(parts.symbol, "className", `block-symbol ${looks.class}`);
    const use = parts.symbol.querySelector("use");
    if (use.getAttribute("href") !== `#shape-${looks.symbol}`) use.setAttribute("href", `#shape-${looks.symbol}`);
    set(parts.state, "textContent", state);
  }
  for (const [part, state, word] of [[parts.stranded, STRANDED, "stranded"], [parts.risk, AT_RISK, "at risk"]]) {
    set(part, "hidden", counts[state] === 0);
    if (counts[state] > 0) writeParts(part.lastElementChild, [number.format(counts[state]), ...(isFull ? [` ${word}`] : [])], "i");
  }
  set(parts.load, "hidden", !isFull && (!isOk || counts[STRANDED] + counts[AT_RISK] > 0));
  writeParts(parts.load, isFull ? loadParts(block.size, instance) : [number.format(block.size)], "span");
}

export class Headers {
  constructor(element, ranks) {
    this.element = element;
    this.ranks = ranks;
    this.byKey = new Map();
  }

  /** Remove all headers: keys of another grouping name other blocks. */
  clear() {
    this.byKey.clear();
    this.element.replaceChildren();
  }

  /** blocks: as in `layout`, [{ key, name, instance, counts, size, isDead, isStranding }]. */
  paint(layout, blocks, top, height) {
    const visible = new Set();
    layout.blocks.forEach((place, at) => {
      if (layout.header === "none" || place.y > top + height + MARGIN || place.y + place.h < top - MARGIN) return;
      visible.add(blocks[at].key);
      this.paintHeader(layout, place, blocks[at]);
    });
    for (const [key, header] of this.byKey) {
      if (visible.has(key)) continue;
      header.remove();
      this.byKey.delete(key);
    }
  }

  paintHeader(layout, place, block) {
    let header = this.byKey.get(block.key);
    if (header === undefined) {
      header = createHeader(block.key);
      this.byKey.set(block.key, header);
      this.element.append(header);
    }
    const className = `block-title block-${layout.header}${block.isDead ? " block-dead" : ""}${block.isStranding ? " block-stranding" : ""}`;
    const signature = [className, block.name, block.instance?.label, block.instance?.class, block.instance?.work, block.instance?.load, block.instance?.current, block.instance?.imbalance, block.counts, block.size].join("\u0000");
    const position = `${place.x} ${place.y} ${place.w}`;
    if (header.dataset.position !== position) {
      header.dataset.position = position;
      header.style.transform = `translate(${place.x}px, ${place.y}px)`;
      header.style.width = `${place.w}px`;
    }
    if (header.signature === signature) return;
    header.signature = signature;
    set(header, "className", className);
    write(header, block, layout.header === "full");
    const load = describeLoad(block.instance);
    header.title = [describeBlock(block, this.ranks), load, block.instance?.sentence].filter(Boolean).join(". ");
  }
}
