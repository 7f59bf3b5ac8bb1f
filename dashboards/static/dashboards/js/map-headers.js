/* Headers of blocks: HTML above the canvas, so that they are text. Only those near the visible part exist. */

import { STATES, STRANDED } from "./fleet-state.js";
import { describeBlock, describeLoad, shortLoad } from "./map-words.js";

const AT_RISK = STATES.indexOf("at_risk");
/** Distance from the visible part, px, within which headers exist. */
const MARGIN = 400;
const number = new Intl.NumberFormat("en");

function symbol(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "shape");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#shape-${name}`);
  svg.append(use);
  return svg;
}

function part(className, text, name = "") {
  const element = document.createElement("span");
  element.className = className;
  if (name !== "") element.append(symbol(name));
  element.append(text);
  return element;
}

/** Return the parts of a header: name, agents that need attention, state, load. */
function partsOf(block, isFull) {
  const title = document.createElement("b");
  title.textContent = block.name;
  const { instance, counts } = block;
  const isOk = instance === null || instance.label === "OK";
  const first = isOk ? [title] : [part(`block-symbol ${instance.class}`, "", instance.symbol), title];
  const bad = [[STRANDED, "block-stranded"], [AT_RISK, "block-risk"]]
    .filter(([state]) => counts[state] > 0)
    .map(([state, name]) => part(name, `${number.format(counts[state])}${isFull ? ` ${state === STRANDED ? "stranded" : "at risk"}` : ""}`, STATES[state]));
  if (!isFull) return [...first, ...bad, ...(bad.length === 0 && isOk ? [part("block-load", number.format(block.size))] : [])];
  const state = isOk ? [] : [part(`block-state ${instance.class}`, instance.label)];
  const load = instance === null ? `${number.format(block.size)} agent${block.size === 1 ? "" : "s"}` : shortLoad(instance, block.imbalance);
  const lines = [[...first, ...state], [...bad, part("block-load", load)]];
  return lines.map((items) => {
    const line = document.createElement("span");
    line.className = "block-row";
    line.append(...items);
    return line;
  });
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

  /** blocks: as in `layout`, [{ key, name, instance, imbalance, counts, size, isDead }]. */
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
      header = document.createElement("div");
      header.dataset.key = String(block.key);
      this.byKey.set(block.key, header);
      this.element.append(header);
    }
    const className = `block-title block-${layout.header}${block.isDead ? " block-dead" : ""}`;
    const signature = [className, block.name, block.instance?.label, block.instance?.load, block.instance?.current, block.imbalance?.toFixed(2), block.counts[STRANDED], block.counts[AT_RISK], block.size].join("\u0000");
    const position = `${place.x} ${place.y} ${place.w}`;
    if (header.dataset.position !== position) {
      header.dataset.position = position;
      header.style.transform = `translate(${place.x}px, ${place.y}px)`;
      header.style.width = `${place.w}px`;
    }
    if (header.signature === signature) return;
    header.signature = signature;
    header.className = className;
    header.replaceChildren(...partsOf(block, layout.header === "full"));
    const load = describeLoad(block.instance, block.imbalance);
    header.title = [describeBlock(block, this.ranks), load, block.instance?.sentence].filter(Boolean).join(". ");
  }
}
