/* The map as it is now: blocks in order, their layout, and what the filters leave out; and its painting. */

import { NO_INSTANCE, STATES } from "./fleet-state.js";
import { Blocks, agentsOf } from "./map-blocks.js";
import { groupAgents, orderKeys } from "./map-groupings.js";
import { arrange, rectOf } from "./map-layout.js";
import { SILENT_STATES, isFailed } from "./map-words.js";

/** Empty slots disappear this long after the last move, or when they are more than this share. */
const COMPACT_MS = 60_000;
const EMPTY_MOST = 0.4;

export class Scene {
  /** looks: dashboards.fleet.map_looks; painter, overlay, headers: the layers; frame: the scrolling element. */
  constructor({ data, names, looks, painter, overlay, headers, frame }) {
    Object.assign(this, { data, names, painter, overlay, headers, frame });
    this.ranks = looks.map(({ rank }) => rank);
    this.model = new Blocks(STATES.length);
    this.group = "proxy";
    /** Groups of the server, for a grouping that the browser cannot derive. */
    this.remote = null;
    this.zoom = 0;
    this.blocks = [];
    this.layout = null;
    this.faded = null;
    this.size = { width: 0, height: 0 };
    /** Agent at the cursor, or null; rectangle that is being drawn, or null. */
    this.cursor = null;
    this.brush = null;
    this.selected = new Set();
    this.epoch = null;
    this.movedAt = null;
    this.sizes = "";
  }

  get isReady() {
    return this.layout !== null && this.blocks.length > 0;
  }

  get state() {
    return this.data.live.state;
  }

  /** Change the grouping: agents do not move, they are arranged anew. */
  setGroup(group, remote) {
    [this.group, this.remote] = [group, remote];
    this.headers.clear();
    this.clear();
  }

  clear() {
    this.model.clear();
    this.layout = null;
    this.sizes = "";
  }

  /** Set the size of the visible part and the theme. */
  resize(width, height, theme) {
    this.size = { width, height };
    this.theme = theme;
    this.painter.resize(width, height, theme);
    this.overlay.resize(width, height, theme);
    this.sizes = "";
  }

  /** Take over the data, and return whether there are agents. filter(agent, state): whether the map shows an agent. */
  update(filter) {
    const { state, data } = this;
    if (state.epoch !== this.epoch) {
      this.epoch = state.epoch;
      this.names.begin(state.epoch);
      this.clear();
      [this.cursor, this.selected] = [null, new Set()];
    }
    const { keys, shown, describe } = groupAgents(this.group, { state, instances: data.instances, remote: this.remote });
    const positions = this.layout === null ? null : { layout: this.layout, numbers: new Map(this.blocks.map(({ key }, number) => [key, number])) };
    const moved = this.model.sync(keys.length === state.states.length ? keys : pad(keys, state.states.length), state.states);
    if (moved.length > 0) this.movedAt = performance.now();
    this.compactIfCalm();
    this.blocks = this.describeBlocks(shown, describe);
    this.arrange();
    this.faded = filter === null ? null : this.fade(filter);
    if (positions !== null) this.animate(moved, positions);
    return this.model.keys.length > 0;
  }

  describeBlocks(shown, describe) {
    for (const key of shown) this.model.block(key);
    const isShown = new Set(shown);
    const keys = [...this.model.byKey].filter(([key, block]) => block.slots.length > 0 || isShown.has(key)).map(([key]) => key);
    return orderKeys(keys, shown.filter((key) => this.model.byKey.has(key)), describe).map((key) => {
      const { name, instance, query } = describe(key);
      const { slots, counts, size } = this.model.block(key);
      return {
        key, name, instance, query, slots, counts, size,
        isDead: instance !== null && isFailed(instance),
        isStranding: instance?.stranding ?? false,
        isDoubtful: instance !== null && SILENT_STATES.has(instance.state),
      };
    });
  }

  compactIfCalm() {
    if (this.movedAt === null || this.data.live.distrust !== null) return;
    if (performance.now() - this.movedAt < COMPACT_MS && this.model.emptyShare < EMPTY_MOST) return;
    this.model.compact();
    this.movedAt = null;
  }

  /** Arrange the blocks, unless nothing changed that matters. */
  arrange() {
    const sizes = this.blocks.map(({ slots }) => slots.length);
    const signature = `${this.size.width} ${this.size.height} ${this.zoom} ${this.blocks.map(({ key }, number) => `${key}:${sizes[number]}`)}`;
    if (this.layout !== null && signature === this.sizes) return;
    this.sizes = signature;
    this.layout = arrange(sizes, this.size.width, this.size.height, this.zoom);
    this.zoom = this.layout.zoom;
  }

  fade(filter) {
    const { states } = this.model;
    const faded = new Uint8Array(states.length);
    for (let agent = 0; agent < states.length; agent += 1) faded[agent] = filter(agent, states[agent]) ? 0 : 1;
    return faded;
  }

  /** Show agents moving from where they were to where they are. */
  animate(moved, { layout, numbers }) {
    if (moved.length === 0 || document.hidden) return;
    const moves = moved.map(({ agent, key, slot }) => {
      const to = this.cellOf(agent);
      return {
        from: rectOf(layout, numbers.get(key) ?? 0, Math.floor(slot / layout.perCell)),
        to: rectOf(this.layout, to.number, to.cell),
        colour: this.painter.sprites.colourOf(this.model.states[agent], 0),
      };
    });
    this.overlay.animate(moves);
  }

  /** Return the { number, cell } of an agent. */
  cellOf(agent) {
    return { number: this.numberOf(this.model.keys[agent]), cell: Math.floor(this.model.slots[agent] / this.layout.perCell) };
  }

  /** Return the number of the block with a key. */
  numberOf(key) {
    if (this.numbersFrom !== this.blocks) {
      this.numbersFrom = this.blocks;
      this.numbers = new Map(this.blocks.map((block, number) => [block.key, number]));
    }
    return this.numbers.get(key) ?? 0;
  }

  /** Return the agents of a cell. */
  agentsIn({ number, cell }) {
    return agentsOf(this.blocks[number], cell, this.layout.perCell);
  }

  /** Return whether a filter leaves an agent out. */
  isFaded(agent) {
    return this.faded !== null && this.faded[agent] === 1;
  }

  /** Return the agents in the order in which the map shows them. */
  *inOrder() {
    for (const { slots } of this.blocks) for (const agent of slots) if (agent >= 0) yield agent;
  }

  /** Paint everything that is visible. */
  paint() {
    if (this.layout === null) return;
    const { layout, blocks, faded } = this;
    const top = this.frame.scrollTop;
    this.painter.paint({ layout, blocks, states: this.model.states, faded, top, nameOf: (agent) => this.names.nameOf(agent) });
    this.headers.paint(layout, blocks, top, this.size.height);
    this.paintOver();
  }

  /** Paint only what is above the cells. */
  paintOver() {
    if (this.layout === null) return;
    const cursor = this.cursor === null ? null : this.cellOf(this.cursor);
    this.overlay.paint({ layout: this.layout, top: this.frame.scrollTop, cursor, brush: this.brush, selected: this.selected, cellOf: (agent) => this.cellOf(agent) });
  }

  /** Scroll a rectangle of the map into view. */
  reveal(rect) {
    const margin = this.layout.headerHeight + 8;
    const { scrollTop } = this.frame;
    if (rect.y - margin < scrollTop) this.frame.scrollTop = rect.y - margin;
    else if (rect.y + rect.h + 8 > scrollTop + this.size.height) this.frame.scrollTop = rect.y + rect.h + 8 - this.size.height;
  }
}

/** Return a column with NO_INSTANCE for the agents past its end: they joined after it was fetched. */
function pad(column, length) {
  const padded = new Uint16Array(length).fill(NO_INSTANCE);
  padded.set(column.subarray(0, length));
  return padded;
}
