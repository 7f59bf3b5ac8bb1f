/* Names and ids of agents, requested when they are shown. They never change within an epoch. */

import { formatIndices } from "./map-query.js";
import { addMoment } from "./moment.js";

/** Maximum number of agents in one request: dashboards.fleet.views.map.MAX_NAMES. */
const AT_MOST = 2_000;
/** Time to collect agents for one request. */
const COLLECT_MS = 30;

export class Names {
  /** onArrival: called after names arrived. */
  constructor(prefix, onArrival) {
    this.prefix = prefix;
    this.onArrival = onArrival;
    this.epoch = null;
    this.clear();
  }

  clear() {
    this.byAgent = new Map();
    this.wanted = new Set();
    this.timer = null;
  }

  /** Start over for a new epoch of the record. */
  begin(epoch) {
    if (epoch === this.epoch) return;
    clearTimeout(this.timer);
    this.clear();
    this.epoch = epoch;
  }

  /** Return { id, name } of an agent, or null; then it is requested. */
  get(agent) {
    const found = this.byAgent.get(agent);
    if (found === undefined) this.request(agent);
    return found ?? null;
  }

  /** Return the name of an agent, or "" until it arrives. */
  nameOf(agent) {
    return this.get(agent)?.name ?? "";
  }

  request(agent) {
    this.wanted.add(agent);
    this.timer ??= setTimeout(() => this.fetchWanted(), COLLECT_MS);
  }

  /** Return { id, name } of these agents, in order; null if they could not be fetched. */
  async all(agents) {
    for (let first = 0; first < agents.length; first += AT_MOST) {
      const missing = agents.slice(first, first + AT_MOST).filter((agent) => !this.byAgent.has(agent));
      if (missing.length > 0) await this.fetch(missing);
    }
    const found = agents.map((agent) => this.byAgent.get(agent));
    return found.includes(undefined) ? null : found;
  }

  async fetchWanted() {
    const agents = [...this.wanted].slice(0, AT_MOST);
    await this.fetch(agents);
    for (const agent of agents) this.wanted.delete(agent);
    this.timer = this.wanted.size > 0 ? setTimeout(() => this.fetchWanted(), COLLECT_MS) : null;
    this.onArrival();
  }

  async fetch(agents) {
    const epoch = this.epoch;
    const ordered = [...agents].sort((one, other) => one - other);
    try {
      const answer = await fetch(addMoment(`${this.prefix}/map/names.json?agents=${formatIndices(ordered)}`), { headers: { Accept: "application/json" } });
      if (!answer.ok || answer.redirected) return;
      const content = await answer.json();
      // The record was rebuilt: the same numbers are other agents now.
      if (content.epoch !== epoch || this.epoch !== epoch) return;
      ordered.forEach((agent, at) => this.byAgent.set(agent, { id: content.ids[at], name: content.names[at] }));
    } catch {
      // The console is unreachable: cells stay without names until the next request.
    }
  }
}
