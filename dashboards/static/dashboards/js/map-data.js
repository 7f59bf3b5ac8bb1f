/* The data of the map and of the topology above it: the live columns, the instances, and the place that both show.
   `showMoment` replaces the present by a past moment, with the same fields and events.

   `data.live.state` (FleetState) has, by agent index: `states`, `proxies`, `auths`, `causes`; `live.state.counts` has the
   number of agents by state. `data.instances` has every auth and proxy by the index that these columns contain; the
   fields are those of dashboards/fleet/map_instances.py, and `work`: what a change does with the instance now, such as
   "restarting", or "". */

import { NO_INSTANCE } from "./fleet-state.js";
import { inflateText } from "./inflate.js";
import { Live } from "./live.js";

/** Maximum age of the numbers of the instances, and minimum time between two requests that only numbers need. */
const INSTANCES_EVERY_MS = 10_000;
const INSTANCES_AT_MOST_EVERY_MS = 1_000;

/** No place: all agents. */
export const EVERYWHERE = Object.freeze({ proxy: null, auth: null });

/**
 * Events: "agents" (detail.kind "snapshot", "delta", "stale" or "counts"; detail.changes of a delta: [agent, state, proxy,
 * auth, cause]), "instances" (`instances` is new), "place" (`place` is new).
 */
export class MapData extends EventTarget {
  constructor({ prefix, cluster }) {
    super();
    this.prefix = prefix;
    this.live = new Live({ prefix, cluster, cells: true, columns: true });
    /** Instances by index, auths first, in natural order of their names; empty until they arrive. */
    this.instances = new Map();
    /** Which agents the map shows: with this proxy and this auth, as indices; null is any. NO_INSTANCE: without one. */
    this.place = EVERYWHERE;
    this.requestedAt = -Infinity;
    this.timer = null;
    this.isRequesting = false;
    this.isOutdated = false;
    /** Cancels the request of a past moment that is under way, or null. */
    this.momentRequest = null;
  }

  start() {
    this.live.addEventListener("change", ({ detail }) => {
      this.emit("agents", detail);
      this.requestSoon();
    });
    // The hint comes in the round that finds a failure: its agents may still look healthy.
    this.live.addEventListener("instances", () => this.request());
    this.live.addEventListener("headline", () => this.noteWork() && this.emit("instances"));
    setInterval(() => performance.now() - this.requestedAt > INSTANCES_EVERY_MS && this.requestSoon(), INSTANCES_AT_MOST_EVERY_MS);
    this.request();
    this.live.start();
  }

  /**
   * Show a past moment (ISO 8601) instead of the present; a later call replaces this one. onArrival(at): called before the
   * events, with the moment as the server names it. Return why the moment cannot be shown, "" after success, or null if
   * another call has replaced this one.
   */
  async showMoment(at, onArrival) {
    this.momentRequest?.abort();
    const request = new AbortController();
    this.momentRequest = request;
    try {
      const answer = await fetch(`${this.prefix}/map/moment.json?at=${encodeURIComponent(at)}`, { headers: { Accept: "application/json" }, signal: request.signal });
      if (answer.redirected) return "You are signed out. Sign in to see the past.";
      if (!answer.ok && answer.status !== 400) return `The console could not read the history (status ${answer.status}). Try again.`;
      const content = await answer.json();
      if (!answer.ok) return content.detail;
      const columns = await inflateText(content.columns);
      if (this.momentRequest !== request) return null;
      this.receiveMoment(content, columns, onArrival);
      return "";
    } catch {
      return this.momentRequest === request ? "The console does not respond: the moment was not loaded. Try again." : null;
    }
  }

  receiveMoment({ at, hello, headline, instances }, columns, onArrival) {
    const { live } = this;
    live.suspend();
    live.state.hello(hello);
    live.state.snapshot(columns);
    live.headline = headline;
    onArrival(at);
    this.receive({ instances });
    this.emit("agents", { kind: "snapshot" });
    live.emit("headline");
  }

  /** Show only the agents of a place: { proxy, auth }. The same place again shows all agents. */
  show(place) {
    const isSame = place.proxy === this.place.proxy && place.auth === this.place.auth;
    this.place = isSame ? EVERYWHERE : { ...EVERYWHERE, ...place };
    this.emit("place");
  }

  /** Whether the map shows an agent, by its place. */
  isShown(agent) {
    const { proxy, auth } = this.place;
    const { proxies, auths } = this.live.state;
    return (proxy === null || proxies[agent] === proxy) && (auth === null || auths[agent] === auth);
  }

  /** Return the name of an instance by its index. */
  nameOf(index) {
    return index === NO_INSTANCE ? "" : this.instances.get(index)?.name ?? `instance ${index}`;
  }

  requestSoon() {
    this.timer ??= setTimeout(() => this.request(), Math.max(0, INSTANCES_AT_MOST_EVERY_MS - (performance.now() - this.requestedAt)));
  }

  /** Fetch the instances now. A request during another one is sent after it: that one may have missed the change. */
  async request() {
    clearTimeout(this.timer);
    this.timer = null;
    this.isOutdated = this.isRequesting;
    if (this.isRequesting || this.live.isSuspended || document.hidden) return;
    this.isRequesting = true;
    this.requestedAt = performance.now();
    try {
      const answer = await fetch(`${this.prefix}/map/instances.json`, { headers: { Accept: "application/json" } });
      const content = answer.ok && !answer.redirected ? await answer.json() : null;
      if (content !== null && !this.live.isSuspended) this.receive(content);
    } catch {
      // The console is unreachable: the page marks its data as stale, and the next request tries again.
    } finally {
      this.isRequesting = false;
      if (this.isOutdated) this.request();
    }
  }

  receive({ instances }) {
    this.instances = new Map(instances.map((instance) => [instance.index, { ...instance, work: "" }]));
    this.noteWork();
    this.emit("instances");
  }

  /** Note what changes do with instances, as the headline tells. Return whether anything differs. */
  noteWork() {
    const works = new Map((this.live.headline?.changes ?? []).flatMap((change) => Object.entries(change.instances)));
    let differs = false;
    for (const instance of this.instances.values()) {
      const work = works.get(instance.name) ?? "";
      differs ||= work !== instance.work;
      instance.work = work;
    }
    return differs;
  }

  emit(type, detail = {}) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
