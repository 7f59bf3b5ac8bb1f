/* The layer above the cells: lines between cells, marks of agents that need attention, the hatch of unknown agents, and
   the cursor. It is a separate canvas because a mark may be larger than its cell: a single stranded agent among 100,000
   must be visible, but marks on every cell of a dense block would only blur its colour. */

import { UNKNOWN } from "./fleet-state.js";

/** Minimum size of a cell, px, in which a mark fits. */
const ROOMY = 10;
/** In smaller cells, marks are drawn only if fewer agents of the block than this share need one. */
const RARE = 0.2;
/** Draw a mark from paths of unit size: filled areas get an outline of half the line width. */
function draw(c, [lines, area], radius) {
  c.scale(radius, radius);
  c.lineWidth /= radius;
  c.stroke(lines);
  c.lineWidth /= 2;
  c.fill(area);
  c.stroke(area);
  c.scale(1 / radius, 1 / radius);
}

function line(c, x1, y1, x2, y2) {
  c.beginPath();
  c.moveTo(x1, y1);
  c.lineTo(x2, y2);
  c.stroke();
}

export class Marks {
  /** figure: dashboards.fleet.figures.build_map_figure(). */
  constructor(canvas, figure) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.figure = figure;
    this.paths = figure.marks.map((mark) => mark.map((path) => new Path2D(path)));
  }

  /** Resize to the grid, at the resolution of the screen. */
  resize(grid) {
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [grid.cols * grid.cell, grid.rows * grid.cell];
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.scale = scale;
  }

  /** Draw all marks. shown(state): whether the filter shows the state. */
  paint({ grid, states, shown, dark, cursor, chosen }) {
    const c = this.context;
    c.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const page = this.figure.pages[dark ? "dark" : "light"];
    this.rule(grid, page);
    for (const block of grid.blocks) this.paintBlock(block, grid, states, shown, dark, page);
    const ink = dark ? "#e8edf2" : "#14191d";
    if (chosen !== null && chosen !== cursor) this.frame(grid, chosen, page, ink);
    if (cursor !== null) this.frame(grid, cursor, page, dark ? "#6cb6ff" : "#0649e6");
  }

  /** Draw lines between the cells in the colour of the page. */
  rule(grid, page) {
    const c = this.context;
    const size = grid.cell;
    c.fillStyle = page;
    for (const { x, y, w, h } of grid.blocks) {
      for (let column = 1; column <= w; column += 1) c.fillRect((x + column) * size - 1, y * size, 1, h * size);
      for (let row = 1; row <= h; row += 1) c.fillRect(x * size, (y + row) * size - 1, w * size, 1);
    }
  }

  paintBlock(block, grid, states, shown, dark, page) {
    const c = this.context;
    const marked = block.agents.filter((agent) => this.paths[states[agent]].length > 0 && shown(states[agent]));
    if (marked.length === 0) return;
    const roomy = grid.cell >= ROOMY;
    if (!roomy && marked.length / block.agents.length >= RARE) {
      if (marked.some((agent) => states[agent] === UNKNOWN)) this.hatch(block, grid, states, page);
      return;
    }
    for (const agent of marked) {
      const state = states[agent];
      if (!roomy && !this.figure.loud.includes(state)) continue;
      const at = grid.cellOf[agent];
      c.save();
      c.translate((at % grid.cols + 0.5) * grid.cell, (Math.floor(at / grid.cols) + 0.5) * grid.cell);
      if (roomy) this.within(state, grid.cell, page);
      else this.above(state, dark, page);
      c.restore();
    }
  }

  /** Draw a mark inside its cell, in the colour of the page. */
  within(state, cell, page) {
    const c = this.context;
    c.strokeStyle = page;
    c.fillStyle = page;
    c.lineWidth = Math.max(1.5, cell / 9);
    c.lineCap = "round";
    draw(c, this.paths[state], cell * 0.25);
  }

  /** Draw a mark that is larger than its cell, in its own colour on a halo. */
  above(state, dark, page) {
    const c = this.context;
    const radius = 3.5;
    c.lineCap = "round";
    for (const [colour, width] of [[page, 5], [this.figure.colours[state][dark ? 1 : 0], 2.2]]) {
      c.strokeStyle = colour;
      c.fillStyle = colour;
      c.lineWidth = width;
      draw(c, this.paths[state], colour === page ? radius + 0.5 : radius);
    }
  }

  /** Draw one hatch over all unknown cells of a dense block. */
  hatch(block, grid, states, page) {
    const c = this.context;
    const size = grid.cell;
    c.save();
    c.beginPath();
    for (const agent of block.agents) {
      if (states[agent] !== UNKNOWN) continue;
      const at = grid.cellOf[agent];
      c.rect(at % grid.cols * size, Math.floor(at / grid.cols) * size, size, size);
    }
    c.clip();
    c.strokeStyle = page;
    c.lineWidth = 1.4;
    const [left, top, width, height] = [block.x * size, block.y * size, block.w * size, block.h * size];
    for (let offset = -height; offset < width; offset += 6) line(c, left + offset, top + height, left + offset + height, top);
    c.restore();
  }

  /** Draw a frame around a cell, with a border in the colour of the page for contrast. */
  frame(grid, agent, page, colour) {
    const c = this.context;
    const at = grid.cellOf[agent];
    const size = Math.max(grid.cell, 9);
    const x = (at % grid.cols + 0.5) * grid.cell - size / 2;
    const y = (Math.floor(at / grid.cols) + 0.5) * grid.cell - size / 2;
    for (const [stroke, width] of [[page, 6], [colour, 2.5]]) {
      c.strokeStyle = stroke;
      c.lineWidth = width;
      c.strokeRect(x, y, size - 1, size - 1);
    }
  }
}
