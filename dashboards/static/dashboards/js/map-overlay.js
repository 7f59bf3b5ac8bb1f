/* The layer above the cells: the cursor, the selection, the rectangle that is being drawn, and agents that move. */

import { rectOf } from "./map-layout.js";

/** Duration of a move from one block to another, and the maximum number of agents that are seen moving at once. */
const MOVE_MS = 900;
const MOVES_MOST = 400;
/** Time for which a cell stays marked instead, where the user prefers reduced motion. */
const MARK_MS = 5_000;

/** Opacity of moving agents: the cells below them stay readable. */
const MOVE_OPACITY = 0.55;

const ease = (share) => 1 - (1 - share) ** 3;

/** Return at most `most` of the items, evenly spread. */
export function sample(items, most) {
  if (items.length <= most) return items;
  return Array.from({ length: most }, (_, number) => items[Math.floor((number * items.length) / most)]);
}

export class Overlay {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    /** Moves in progress: [{ from, to: rectangles, colour, start }]. */
    this.moves = [];
    this.scene = null;
    this.isAnimating = false;
  }

  resize(width, height, theme) {
    this.scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(width * this.scale));
    this.canvas.height = Math.max(1, Math.round(height * this.scale));
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.theme = theme;
  }

  /** Show agents that moved: [{ from, to, colour }] in the coordinates of the map. */
  animate(moves) {
    const start = performance.now();
    this.moves.push(...sample(moves, MOVES_MOST).map((move) => ({ ...move, start })));
    this.run();
  }

  /**
   * scene: { layout, top, cursor, brush, selected, cellOf }; cursor: { number, cell } or null; selected: Set of agents;
   * cellOf(agent): its { number, cell }.
   */
  paint(scene) {
    this.scene = scene;
    if (!this.isAnimating) this.draw();
  }

  run() {
    if (this.isAnimating) return;
    this.isAnimating = true;
    const frame = () => {
      this.draw();
      this.isAnimating = this.moves.length > 0;
      if (this.isAnimating) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  draw() {
    const { context, scale, scene } = this;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (scene === null) return;
    context.translate(0, -scene.top);
    this.drawSelected(scene);
    this.drawMoves(scene.layout);
    if (scene.cursor !== null) this.drawCursor(scene);
    if (scene.brush !== null) this.drawBrush(scene.brush);
  }

  drawMoves(layout) {
    const [now, calm] = [performance.now(), matchMedia("(prefers-reduced-motion: reduce)").matches];
    this.moves = this.moves.filter(({ start }) => now - start < (calm ? MARK_MS : MOVE_MS));
    if (this.moves.length === 0) return;
    this.context.save();
    this.clipHeaders(layout);
    for (const { from, to, colour, start } of this.moves) {
      const share = calm ? 1 : ease((now - start) / MOVE_MS);
      const rect = Object.fromEntries(["x", "y", "w", "h"].map((side) => [side, from[side] + (to[side] - from[side]) * share]));
      if (!calm) {
        this.context.globalAlpha = MOVE_OPACITY;
        this.context.fillStyle = colour;
        this.context.fillRect(rect.x, rect.y, Math.max(4, rect.w - 1), Math.max(4, rect.h - 1));
      }
      this.outline(rect, this.theme.ink, 1.5);
      this.context.globalAlpha = 1;
    }
    this.context.restore();
  }

  /** Clip to everything but the headers of blocks: their numbers stay readable while agents move. */
  clipHeaders({ blocks, headerHeight, width, height }) {
    this.context.beginPath();
    this.context.rect(0, 0, width, height);
    for (const { x, y, w } of blocks) this.context.rect(x, y, w, headerHeight);
    this.context.clip("evenodd");
  }

  drawSelected({ layout, top, selected, cellOf }) {
    const bottom = top + this.canvas.height / this.scale;
    for (const agent of selected) {
      const { number, cell } = cellOf(agent);
      const rect = rectOf(layout, number, cell);
      if (rect.y < bottom && rect.y + rect.h > top) this.outline(rect, this.theme.ink, layout.cell.w < 8 ? 1 : 2);
    }
  }

  drawCursor({ layout, cursor }) {
    const rect = rectOf(layout, cursor.number, cursor.cell);
    const grow = Math.max(0, (11 - Math.min(rect.w, rect.h)) / 2);
    const frame = { x: rect.x - grow, y: rect.y - grow, w: rect.w - layout.cell.gap + 2 * grow, h: rect.h - layout.cell.gap + 2 * grow };
    this.context.strokeStyle = this.theme.page;
    this.context.lineWidth = 6;
    this.context.strokeRect(frame.x, frame.y, frame.w, frame.h);
    this.context.strokeStyle = this.theme.focus;
    this.context.lineWidth = 2.5;
    this.context.strokeRect(frame.x, frame.y, frame.w, frame.h);
  }

  drawBrush({ x, y, w, h }) {
    this.context.fillStyle = `${this.theme.focus}26`;
    this.context.fillRect(x, y, w, h);
    this.context.strokeStyle = this.theme.focus;
    this.context.lineWidth = 1.5;
    this.context.strokeRect(x, y, w, h);
  }

  outline({ x, y, w, h }, colour, width) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = width;
    this.context.strokeRect(x + width / 2, y + width / 2, Math.max(2, w - 1 - width), Math.max(2, h - 1 - width));
  }
}
