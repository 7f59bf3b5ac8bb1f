/* Pointer and keyboard on the map. It decides which cell is meant, and calls the methods of `actions`. */

import { HEALTHY } from "./fleet-state.js";
import { declareKeys } from "./keys.js";
import { cellAt, cellsIn, rectOf, step } from "./map-layout.js";

/** Distance, px, from which a movement with the button down draws a rectangle. */
const DRAG_PX = 5;
/** Distance, px, within which the pointer and a finger find an agent that is not healthy. */
const REACH = 6;
const REACH_OF_A_FINGER = 16;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

declareKeys("Map, while it has the focus", [
  ["← ↑ ↓ →", "Move the cursor; with Shift, select a rectangle"],
  ["n or p", "Next or previous agent that is not healthy"],
  ["b", "Select the block of the cursor"],
  ["Ctrl a", "Select all agents that the filter shows"],
  ["+ or −", "Larger or smaller cells"],
  ["0", "Fit the screen"],
  ["Enter", "Open the agent"],
  ["Esc", "Clear cursor and selection"],
]);

export class Input {
  /**
   * element: the map; scene: Scene. actions: hover(cell or null, block number or null), place(agent), select(agents, add),
   * open(agent), zoom(steps, agent), seek(direction), clear(), focusSearch().
   */
  constructor(element, scene, actions) {
    Object.assign(this, { element, scene, actions });
    /** Where the button was pressed; null: it is not. The cell from which Shift and arrows select. */
    this.pressed = null;
    this.anchor = null;
    element.addEventListener("pointerdown", (event) => this.press(event));
    element.addEventListener("pointermove", (event) => this.move(event));
    element.addEventListener("pointerup", (event) => this.release(event));
    element.addEventListener("pointercancel", () => this.cancel());
    element.addEventListener("pointerleave", () => this.pressed ?? this.actions.hover(null, null));
    element.addEventListener("dblclick", () => this.enter());
    element.addEventListener("wheel", (event) => this.turn(event), { passive: false });
    element.addEventListener("keydown", (event) => this.key(event));
  }

  /** Return the point of an event in the coordinates of the map. */
  pointOf(event) {
    const box = this.element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /** Return the { number, cell } at the pointer: in small cells, of an agent near it that is not healthy. */
  find(event) {
    const { layout, model } = this.scene;
    const { x, y } = this.pointOf(event);
    const at = cellAt(layout, x, y);
    const reach = event.pointerType === "touch" ? REACH_OF_A_FINGER : REACH;
    if (at === null || layout.perCell > 1 || layout.cell.w >= 2 * reach) return at;
    const isSick = ({ number, cell }) => cell >= 0 && this.scene.agentsIn({ number, cell }).some((agent) => model.states[agent] !== HEALTHY);
    if (isSick(at)) return at;
    let [nearest, least] = [at, Infinity];
    for (const found of cellsIn(layout, { x: x - reach, y: y - reach, w: 2 * reach, h: 2 * reach })) {
      const rect = rectOf(layout, found.number, found.cell);
      const far = (rect.x + rect.w / 2 - x) ** 2 + (rect.y + rect.h / 2 - y) ** 2;
      if (far < least && isSick(found)) [nearest, least] = [found, far];
    }
    return nearest;
  }

  press(event) {
    if (!this.scene.isReady || event.button !== 0 || event.pointerType === "touch") return;
    this.pressed = { ...this.pointOf(event), id: event.pointerId, isDrag: false };
  }

  move(event) {
    if (!this.scene.isReady) return;
    if (this.pressed === null) {
      const at = this.find(event);
      this.actions.hover(at !== null && at.cell >= 0 ? at : null, at?.number ?? null);
      return;
    }
    const { x, y } = this.pointOf(event);
    const [dx, dy] = [x - this.pressed.x, y - this.pressed.y];
    if (!this.pressed.isDrag && Math.hypot(dx, dy) < DRAG_PX) return;
    if (!this.pressed.isDrag) this.element.setPointerCapture(this.pressed.id);
    this.pressed.isDrag = true;
    this.scene.brush = { x: Math.min(x, this.pressed.x), y: Math.min(y, this.pressed.y), w: Math.abs(dx), h: Math.abs(dy) };
    this.scene.paintOver();
  }

  release(event) {
    if (!this.scene.isReady || event.button !== 0) return;
    const { pressed } = this;
    const { brush } = this.scene;
    this.cancel();
    const isAdded = event.shiftKey || event.ctrlKey || event.metaKey;
    if (pressed?.isDrag && brush !== null) {
      this.actions.select(this.agentsInside(brush), isAdded);
      return;
    }
    const at = this.find(event);
    if (at === null) return;
    const agents = at.cell >= 0 ? this.scene.agentsIn(at) : [];
    // A click on the header of a block selects the block.
    if (at.cell < 0) this.actions.select(this.scene.blocks[at.number].slots.filter((agent) => agent >= 0), isAdded);
    else if (agents.length > 0 && isAdded) this.actions.select(agents, true);
    else if (agents.length > 0) this.actions.place(agents[0]);
  }

  cancel() {
    this.pressed = null;
    if (this.scene.brush === null) return;
    this.scene.brush = null;
    this.scene.paintOver();
  }

  /** Return the agents inside a rectangle that no filter leaves out. */
  agentsInside(rect) {
    return cellsIn(this.scene.layout, rect).flatMap((found) => this.scene.agentsIn(found)).filter((agent) => !this.scene.isFaded(agent));
  }

  turn(event) {
    // Without Ctrl, the wheel scrolls. A pinch on a touchpad comes as a wheel with Ctrl.
    if (!event.ctrlKey || !this.scene.isReady) return;
    event.preventDefault();
    const at = this.find(event);
    this.actions.zoom(event.deltaY < 0 ? 1 : -1, at !== null && at.cell >= 0 ? this.scene.agentsIn(at)[0] ?? null : null);
  }

  enter() {
    const { cursor, layout } = this.scene;
    if (cursor === null) return;
    if (layout.perCell > 1) this.actions.zoom(Infinity, cursor);
    else this.actions.open(cursor);
  }

  key(event) {
    const { scene, actions } = this;
    if (!scene.isReady || event.altKey) return;
    const arrow = ARROWS[event.key];
    if (event.ctrlKey || event.metaKey) {
      if (event.key !== "a") return;
      actions.select([...scene.inOrder()].filter((agent) => !scene.isFaded(agent)), false);
    } else if (arrow !== undefined) this.walk(arrow, event.shiftKey);
    else if (event.key === "n" || event.key === "p") actions.seek(event.key === "n" ? 1 : -1);
    else if (event.key === "b" && scene.cursor !== null) actions.select(scene.blocks[scene.cellOf(scene.cursor).number].slots.filter((agent) => agent >= 0), event.shiftKey);
    else if (event.key === "+" || event.key === "=") actions.zoom(1, scene.cursor);
    else if (event.key === "-") actions.zoom(-1, scene.cursor);
    else if (event.key === "0") actions.zoom(-Infinity, scene.cursor);
    else if (event.key === "/") actions.focusSearch();
    else if (event.key === "Enter") this.enter();
    else if (event.key === "Escape") actions.clear();
    else return;
    event.preventDefault();
  }

  /** Move the cursor to the next cell; with Shift, select the rectangle from where Shift was pressed first. */
  walk([dx, dy], isSelecting) {
    const { scene } = this;
    const isEmpty = (number, cell) => scene.agentsIn({ number, cell }).length === 0;
    if (scene.cursor === null) {
      for (const agent of scene.inOrder()) {
        this.actions.place(agent);
        return;
      }
      return;
    }
    const from = scene.cellOf(scene.cursor);
    if (!isSelecting) this.anchor = null;
    else this.anchor ??= scene.cursor;
    const next = step(scene.layout, from, dx, dy, isEmpty);
    if (next !== null) this.actions.place(scene.agentsIn(next)[0]);
    if (isSelecting) this.selectFromAnchor();
  }

  selectFromAnchor() {
    const { scene } = this;
    const [one, other] = [this.anchor, scene.cursor].map((agent) => scene.cellOf(agent)).map(({ number, cell }) => rectOf(scene.layout, number, cell));
    const [x, y] = [Math.min(one.x, other.x), Math.min(one.y, other.y)];
    const [right, bottom] = [Math.max(one.x + one.w, other.x + other.w), Math.max(one.y + one.h, other.y + other.h)];
    this.actions.select(this.agentsInside({ x: x + 1, y: y + 1, w: right - x - 2, h: bottom - y - 2 }), false);
  }
}
