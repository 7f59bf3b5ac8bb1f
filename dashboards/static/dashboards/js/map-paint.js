/* The painter of the cells. Every frame fills one pixel buffer and puts it on the canvas: the time depends on the size of
   the screen and not on the number of agents (4 ms for 100,000 cells on one core without a graphics card). */

import { HEALTHY, STATES, label } from "./fleet-state.js";
import { pixelOf } from "./map-colours.js";
import { DOUBTFUL, FADED, LEVELS, MARK_WIDTH, PLAIN, ROOMY, Sprites } from "./map-sprites.js";

/** In cells without room, marks are drawn above them, but only if fewer cells of the block than this share need one:
    marks on every cell of a dense block would only blur its colour. */
const RARE = 0.2;
/** Minimum height of a cell, CSS px, that shows its state as a second line. */
const TWO_LINES = 40;
const FONT = 'ui-sans-serif, "Inter", "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

export class Painter {
  /** looks: dashboards.fleet.map_looks. */
  constructor(canvas, looks) {
    this.canvas = canvas;
    this.looks = looks;
    this.context = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
    this.scale = 1;
    this.sprites = null;
    /** Rank of each state by urgency, 0 is the most urgent. */
    this.ranks = looks.map(({ rank }) => rank);
    /** States that a block whose instance does not respond puts in doubt. */
    this.isDoubted = looks.map(({ doubted }) => doubted);
    this.isLoud = looks.map(({ loud }) => loud);
  }

  /** Set the size, CSS px, and the theme: { dark, page, block, line, dead }, colours as #rrggbb. */
  resize(width, height, theme) {
    this.scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(width * this.scale));
    this.canvas.height = Math.max(1, Math.round(height * this.scale));
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.image = this.context.createImageData(this.canvas.width, this.canvas.height);
    this.buffer = new Uint32Array(this.image.data.buffer);
    this.sprites = new Sprites(this.looks, theme, this.scale);
    this.theme = Object.fromEntries(["page", "block", "line", "dead", "deadLine", "stranding", "strandingLine"].map((name) => [name, pixelOf(theme[name])]));
    // An opaque canvas of a new size is black until it is painted, which needs data.
    this.buffer.fill(this.theme.page);
    this.context.putImageData(this.image, 0, 0);
  }

  /**
   * Paint what is visible. blocks: as in `layout`, [{ slots, counts, size, isDead, isStranding, isDoubtful }]; states: by agent; faded: by agent
   * whether a filter leaves it out, or null; nameOf(agent): its name, or "".
   */
  paint({ layout, blocks, states, faded, top, nameOf }) {
    this.buffer.fill(this.theme.page);
    this.top = Math.round(top * this.scale);
    const marks = [];
    const bottom = this.top + this.canvas.height;
    layout.blocks.forEach((place, number) => {
      if (Math.round((place.y + place.h) * this.scale) < this.top || Math.round(place.y * this.scale) > bottom) return;
      this.paintFrame(layout, place, blocks[number]);
      if (layout.perCell === 1) this.paintCells(layout, place, blocks[number], states, faded, marks);
      else this.paintAggregates(layout, place, blocks[number], states, faded, marks);
    });
    for (const [x, y, state] of marks) this.blend(this.sprites.above(state), x, y);
    this.context.putImageData(this.image, 0, 0);
    if (layout.named) this.paintNames(layout, blocks, states, faded, nameOf);
  }

  paintFrame(layout, place, block) {
    if (layout.header === "none" && !block.isDead) return;
    const [x, y, right, bottom] = [place.x, place.y, place.x + place.w, place.y + place.h].map((at) => Math.round(at * this.scale));
    const line = Math.max(1, Math.round((block.isDead ? 2 : 1) * this.scale));
    const [ground, edge] = block.isStranding ? ["stranding", "strandingLine"] : block.isDead ? ["dead", "deadLine"] : ["block", "line"];
    this.fill(x, y, right, bottom, this.theme[edge]);
    this.fill(x + line, y + line, right - line, bottom - line, this.theme[ground]);
  }

  paintCells(layout, place, block, states, faded, marks) {
    const { width, height } = this.spriteSize(layout);
    const sprites = this.spritesOf(width, height, layout.named);
    const marked = layout.cell.w < ROOMY && this.isRare(block);
    const [first, last] = this.visibleRows(layout, place);
    for (let slot = first * place.cols; slot < Math.min(last * place.cols, block.slots.length); slot += 1) {
      const agent = block.slots[slot];
      const state = agent < 0 ? 0 : states[agent];
      const shown = faded !== null && faded[agent] ? FADED : block.isDoubtful && this.isDoubted[state] ? DOUBTFUL : PLAIN;
      const x = Math.round((place.left + (slot % place.cols) * layout.cell.w) * this.scale);
      const y = Math.round((place.top + Math.floor(slot / place.cols) * layout.cell.h) * this.scale);
      if (agent < 0) {
        this.blend(this.sprites.empty(width, height), x + width / 2, y - this.top + height / 2);
        continue;
      }
      this.copy((sprites[shown][state] ??= this.sprites.cell(state, shown, width, height, layout.named)), x, y - this.top);
      if (marked && shown === PLAIN && this.isLoud[state]) marks.push([x + width / 2, y - this.top + height / 2, state]);
    }
  }

  paintAggregates(layout, place, block, states, faded, marks) {
    const { width } = this.spriteSize(layout);
    const counts = new Uint32Array(STATES.length);
    const marked = this.isRare(block);
    const [first, last] = this.visibleRows(layout, place);
    for (let cell = first * place.cols; cell < Math.min(last * place.cols, place.cells); cell += 1) {
      counts.fill(0);
      let agents = 0;
      let plain = 0;
      for (let slot = cell * layout.perCell; slot < Math.min((cell + 1) * layout.perCell, block.slots.length); slot += 1) {
        const agent = block.slots[slot];
        if (agent < 0) continue;
        agents += 1;
        if (faded !== null && faded[agent]) continue;
        plain += 1;
        counts[states[agent]] += 1;
      }
      const x = Math.round((place.left + (cell % place.cols) * layout.cell.w) * this.scale);
      const y = Math.round((place.top + Math.floor(cell / place.cols) * layout.cell.h) * this.scale) - this.top;
      if (plain === 0) {
        if (agents === 0) this.blend(this.sprites.empty(width, width), x + width / 2, y + width / 2);
        else this.copy(this.sprites.cell(HEALTHY, FADED, width, width, false), x, y);
        continue;
      }
      let [common, worst] = [0, -1];
      for (let state = 0; state < counts.length; state += 1) {
        if (counts[state] > counts[common]) common = state;
        if (counts[state] > 0 && (worst < 0 || this.ranks[state] < this.ranks[worst])) worst = state;
      }
      const level = Math.max(1, Math.round((counts[worst] / plain) * LEVELS));
      const shown = block.isDoubtful && this.isDoubted[common] ? DOUBTFUL : PLAIN;
      this.copy(this.sprites.aggregate(common, worst, level, shown, width), x, y);
      if (marked && this.isLoud[worst]) marks.push([x + width / 2, y + width / 2, worst]);
    }
  }

  /** Return the cells of one size that were drawn so far, by how they are shown and by state. */
  spritesOf(width, height, named) {
    const key = `${width} ${height} ${named}`;
    if (this.spritesKey !== key || this.spritesFrom !== this.sprites) {
      [this.spritesKey, this.spritesFrom] = [key, this.sprites];
      this.spritesNow = [PLAIN, FADED, DOUBTFUL].map(() => []);
    }
    return this.spritesNow;
  }

  spriteSize({ cell }) {
    return { width: Math.max(1, Math.round(cell.w * this.scale) - cell.gap), height: Math.max(1, Math.round(cell.h * this.scale) - cell.gap) };
  }

  /** Return whether so few agents of a block need attention that each is marked. */
  isRare({ counts, size }) {
    let loud = 0;
    for (let state = 0; state < counts.length; state += 1) if (this.isLoud[state]) loud += counts[state];
    return loud > 0 && loud < RARE * size;
  }

  /** Return the first visible row of cells of a block, and the one after the last. */
  visibleRows(layout, place) {
    const [top, bottom] = [this.top / this.scale, (this.top + this.canvas.height) / this.scale];
    const rows = Math.ceil(place.cells / place.cols);
    const clamp = (row) => Math.min(rows, Math.max(0, row));
    return [clamp(Math.floor((top - place.top) / layout.cell.h)), clamp(Math.ceil((bottom - place.top) / layout.cell.h))];
  }

  fill(left, top, right, bottom, pixel) {
    const { width, height } = this.canvas;
    const [from, to] = [Math.max(0, left), Math.min(width, right)];
    for (let y = Math.max(0, top - this.top); y < Math.min(height, bottom - this.top); y += 1) this.buffer.fill(pixel, y * width + from, y * width + to);
  }

  copy({ width, height, pixels }, x, y) {
    const line = this.canvas.width;
    const right = Math.min(width, line - x);
    const { buffer } = this;
    for (let row = Math.max(0, -y); row < Math.min(height, this.canvas.height - y); row += 1) {
      const [from, to] = [row * width, (y + row) * line + x];
      if (right > 24) buffer.set(pixels.subarray(from, from + right), to);
      else for (let column = 0; column < right; column += 1) buffer[to + column] = pixels[from + column];
    }
  }

  /** Copy a picture with transparent parts around a point. */
  blend({ width, height, pixels }, centreX, centreY) {
    const [left, top] = [Math.round(centreX - width / 2), Math.round(centreY - height / 2)];
    const line = this.canvas.width;
    for (let row = Math.max(0, -top); row < Math.min(height, this.canvas.height - top); row += 1) {
      for (let column = Math.max(0, -left); column < Math.min(width, line - left); column += 1) {
        const pixel = pixels[row * width + column];
        const alpha = pixel >>> 24;
        if (alpha === 0) continue;
        const at = (top + row) * line + left + column;
        this.buffer[at] = alpha === 255 ? pixel : mixPixels(this.buffer[at], pixel, alpha / 255);
      }
    }
  }

  paintNames(layout, blocks, states, faded, nameOf) {
    const { context, scale } = this;
    const { w, h } = layout.cell;
    const lines = h >= TWO_LINES ? 2 : 1;
    const size = w >= 140 ? 14 : 12;
    context.save();
    context.scale(scale, scale);
    context.textBaseline = "middle";
    layout.blocks.forEach((place, number) => {
      const block = blocks[number];
      const [first, last] = this.visibleRows(layout, place);
      for (let slot = first * place.cols; slot < Math.min(last * place.cols, block.slots.length); slot += 1) {
        const agent = block.slots[slot];
        if (agent < 0) continue;
        const state = states[agent];
        const isFaded = faded !== null && faded[agent];
        const shown = isFaded ? FADED : block.isDoubtful && this.isDoubted[state] ? DOUBTFUL : PLAIN;
        const x = place.left + (slot % place.cols) * w + (this.sprites.hasMark(state) ? MARK_WIDTH : 8);
        const y = place.top + Math.floor(slot / place.cols) * h - this.top / scale + h / 2;
        const room = place.left + (slot % place.cols) * w + w - x - 5;
        context.fillStyle = this.sprites.inkOf(state, shown);
        context.globalAlpha = isFaded ? 0.55 : 1;
        context.font = `${size}px ${FONT}`;
        context.fillText(this.cut(nameOf(agent), room), x, lines === 2 ? y - 8 : y);
        if (lines === 1) continue;
        context.font = `12px ${FONT}`;
        context.fillText(this.cut(label(state), room), x, y + 9);
      }
    });
    context.restore();
  }

  /** Shorten a text to a width: names differ at their end, so the middle is left out. */
  cut(text, room) {
    const width = this.context.measureText(text).width;
    if (width <= room || text.length < 4) return text;
    const kept = Math.max(3, Math.floor((text.length * room) / width) - 1);
    const tail = Math.ceil(kept * 0.6);
    return `${text.slice(0, kept - tail)}…${text.slice(-tail)}`;
  }
}

function mixPixels(below, above, share) {
  let pixel = 0xff000000;
  for (let shift = 0; shift < 24; shift += 8) {
    const [one, other] = [(below >>> shift) & 0xff, (above >>> shift) & 0xff];
    pixel |= Math.round(one + (other - one) * share) << shift;
  }
  return pixel >>> 0;
}
