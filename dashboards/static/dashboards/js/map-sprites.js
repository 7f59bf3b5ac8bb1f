/* Cells and marks as small pictures that the painter copies. Each is drawn once per state, size and theme. */

import { UNKNOWN } from "./fleet-state.js";
import { fade, inkOn, mix } from "./map-colours.js";

/** How a cell is shown: as it is; faded by a filter; or doubtful, because the instance of its block does not respond. */
export const PLAIN = 0;
export const FADED = 1;
export const DOUBTFUL = 2;
/** Minimum size of a cell, CSS px, in which a mark fits; and the radius of a mark that is larger than its cell. */
export const ROOMY = 10;
const ABOVE_RADIUS = 3.6;
/** Space for the mark at the left of a cell with a name, CSS px. */
export const MARK_WIDTH = 22;
/** Steps of the share that the most urgent state has in a cell of several agents. */
export const LEVELS = 4;

/** Stroke and fill a mark whose paths have unit size, around (x, y). */
function drawMark(context, [lines, area], x, y, radius, width) {
  context.save();
  context.translate(x, y);
  context.scale(radius, radius);
  context.lineCap = "round";
  context.lineWidth = width / radius;
  context.stroke(lines);
  context.lineWidth /= 2;
  context.fill(area);
  context.stroke(area);
  context.restore();
}

function hatch(context, width, height, colour, step, line) {
  context.save();
  context.beginPath();
  context.rect(0, 0, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = line;
  context.beginPath();
  for (let offset = -height; offset < width + height; offset += step) {
    context.moveTo(offset, height);
    context.lineTo(offset + height, 0);
  }
  context.stroke();
  context.restore();
}

export class Sprites {
  /** looks: dashboards.fleet.map_looks; theme: { dark, page, line }, colours of the page and of lines; scale: pixels per CSS px. */
  constructor(looks, { dark, page, line }, scale) {
    this.looks = looks;
    this.side = dark ? 1 : 0;
    this.page = page;
    this.line = line;
    this.scale = scale;
    this.paths = looks.map(({ mark }) => (mark.length === 0 ? null : mark.map((path) => new Path2D(path))));
    this.cache = new Map();
  }

  /** Return a cell of `width` x `height` pixels as { width, height, pixels }. */
  cell(state, shown, width, height, named) {
    return this.cached(`${state} ${shown} ${width} ${height} ${named}`, width, height, (context) => this.drawCell(context, state, shown, width, height, named));
  }

  /** Return an empty slot: a frame, or a dot where a frame does not fit; the rest is transparent. */
  empty(width, height) {
    return this.cached(`empty ${width} ${height}`, width, height, (context) => {
      context.strokeStyle = this.line;
      context.fillStyle = this.line;
      if (Math.min(width, height) < 7) context.fillRect(Math.floor(width / 2), Math.floor(height / 2), 1, 1);
      else context.strokeRect(0.5, 0.5, width - 1, height - 1);
    });
  }

  /** Return a cell of several agents: most are in `common`, and a share of them, by level, in the more urgent `worst`. */
  aggregate(common, worst, level, shown, size) {
    return this.cached(`${common} ${worst} ${level} ${shown} ${size} of several`, size, size, (context) => {
      this.drawCell(context, common, shown, size, size, false, false);
      if (worst === common) return;
      const side = Math.max(3, Math.round(size * Math.sqrt(level / LEVELS)));
      const [at, colour] = [Math.floor((size - side) / 2), this.colourOf(worst, shown)];
      context.fillStyle = this.page;
      if (side < size) context.fillRect(at - 1, at - 1, side + 2, side + 2);
      context.fillStyle = colour;
      context.fillRect(at, at, side, side);
    });
  }

  /** Return a mark that is larger than its cell, on a halo in the page's colour. */
  above(state) {
    const size = Math.round((2 * ABOVE_RADIUS + 6) * this.scale);
    return this.cached(`${state} above`, size, size, (context) => {
      for (const [colour, width] of [[this.page, 5.5], [this.looks[state].tone[this.side], 2.3]]) {
        context.strokeStyle = colour;
        context.fillStyle = colour;
        drawMark(context, this.paths[state], size / 2, size / 2, ABOVE_RADIUS * this.scale, width * this.scale);
      }
    });
  }

  hasMark(state) {
    return this.paths[state] !== null;
  }

  colourOf(state, shown) {
    const colour = this.looks[state].cell[this.side];
    return shown === FADED ? fade(colour, this.page) : shown === DOUBTFUL ? mix(colour, this.page, 0.45) : colour;
  }

  /** Return the colour of text on a cell. */
  inkOf(state, shown) {
    return inkOn(this.colourOf(state, shown));
  }

  drawCell(context, state, shown, width, height, named, marked = true) {
    const colour = this.colourOf(state, shown);
    const unit = Math.min(width, height);
    context.fillStyle = colour;
    context.fillRect(0, 0, width, height);
    if (state === UNKNOWN) hatch(context, width, height, this.page, Math.max(4, 6 * this.scale), Math.max(1, 1.4 * this.scale));
    if (shown === DOUBTFUL) hatch(context, width, height, this.page, Math.max(3, 5 * this.scale), Math.max(1, 1.2 * this.scale));
    if (!marked || this.paths[state] === null || unit < (ROOMY - 1) * this.scale) return;
    const radius = named ? 5.5 * this.scale : unit * 0.27;
    const x = named ? (MARK_WIDTH / 2) * this.scale : width / 2;
    const ink = named ? this.inkOf(state, shown) : this.page;
    if (state === UNKNOWN) {
      // The mark of unknown is its hatch: a ring of the page's colour would look like another state.
      context.fillStyle = colour;
      if (named) context.fillRect(MARK_WIDTH * this.scale, 0, width, height);
      return;
    }
    context.strokeStyle = shown === FADED ? mix(ink, colour, 0.6) : ink;
    context.fillStyle = context.strokeStyle;
    drawMark(context, this.paths[state], x, height / 2, radius, Math.max(1.5 * this.scale, unit / 9));
  }

  cached(key, width, height, draw) {
    let sprite = this.cache.get(key);
    if (sprite === undefined) {
      const context = new OffscreenCanvas(width, height).getContext("2d");
      draw(context);
      sprite = { width, height, pixels: new Uint32Array(context.getImageData(0, 0, width, height).data.buffer) };
      this.cache.set(key, sprite);
    }
    return sprite;
  }
}
