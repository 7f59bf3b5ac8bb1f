/* Details of one agent on the map: the tooltip at the pointer, and the side panel. */

import { label } from "./fleet-state.js";
import { adoptTimes, fetchPart } from "./page.js";

/** Time that the pointer must rest before the reason is requested. */
const REST_MS = 180;
/** Minimum time between two updates of the panel. */
const PANEL_EVERY_MS = 1_000;

/** Return the URL of an agent's page. */
export function agentUrl(prefix, id) {
  return `${prefix}/agents/${encodeURIComponent(id)}/`;
}

export class Tip {
  constructor(element, prefix) {
    this.element = element;
    this.prefix = prefix;
    this.agent = null;
    this.timer = null;
  }

  /** Show name and state at once, and the reason when it arrives. */
  show(agent, { id, name, home, state }, { x, y, width }) {
    if (agent !== this.agent) {
      this.hide();
      this.agent = agent;
      const title = document.createElement("b");
      title.textContent = name;
      const verdict = document.createElement("span");
      verdict.textContent = home === "" ? label(state) : `${label(state)}, ${home}`;
      const why = document.createElement("span");
      why.className = "tip-why";
      this.element.replaceChildren(title, verdict, document.createElement("br"), why);
      this.timer = setTimeout(() => this.explain(agent, id, why), REST_MS);
    }
    this.element.hidden = false;
    const left = x + 18 + this.element.offsetWidth > width ? x - 14 - this.element.offsetWidth : x + 18;
    this.element.style.left = `${Math.max(0, left)}px`;
    this.element.style.top = `${y + 16}px`;
  }

  hide() {
    clearTimeout(this.timer);
    this.agent = null;
    this.element.hidden = true;
  }

  async explain(agent, id, why) {
    const card = await fetchPart(`${agentUrl(this.prefix, id)}?card`, "agent-card").catch(() => null);
    if (this.agent !== agent || card === null) return;
    why.textContent = card.querySelector(".agent-sentence")?.textContent ?? "";
  }
}

export class Panel {
  /** onClose: called when the user closes the panel. */
  constructor(element, body, prefix, onClose) {
    this.element = element;
    this.body = body;
    this.prefix = prefix;
    this.id = null;
    this.fetchedAt = -Infinity;
    this.timer = null;
    element.querySelector(".panel-close").addEventListener("click", onClose);
    element.addEventListener("keydown", (event) => event.key === "Escape" && onClose());
  }

  async open(id) {
    this.id = id;
    this.element.hidden = false;
    await this.refresh();
  }

  close() {
    clearTimeout(this.timer);
    this.timer = null;
    this.id = null;
    this.element.hidden = true;
    this.body.replaceChildren();
  }

  /** Refresh the panel after a change of the selected agent, once per burst of changes. */
  changed() {
    if (this.id === null || this.timer !== null) return;
    const wait = Math.max(0, PANEL_EVERY_MS - (performance.now() - this.fetchedAt));
    this.timer = setTimeout(() => this.refresh(), wait);
  }

  async refresh() {
    this.timer = null;
    this.fetchedAt = performance.now();
    const id = this.id;
    const card = await fetchPart(`${agentUrl(this.prefix, id)}?card`, "agent-card").catch(() => null);
    if (this.id !== id) return;
    if (card === null) {
      this.body.textContent = "The details of this agent could not be loaded.";
      return;
    }
    this.body.replaceChildren(card);
    adoptTimes(card);
  }
}
