/* The data of the map and of the topology above it: the live columns, the instances, and the place that both show.

   `data.live.state` (FleetState) has, by agent index: `states`, `proxies`, `auths`, `causes`; `live.state.counts` has the
   number of agents by state. `data.instances` has every auth and proxy by the index that these columns contain; the
   fields are those of dashboards/fleet/map_instances.py. */

import { NO_INSTANCE } from "./fleet-state.js";
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
  }

  start() {
    this.live.addEventListener("change", ({ detail }) => {
      this.emit("agents", detail);
      this.requestSoon();
    });
    // The hint comes in the round that finds a failure: its agents may still look healthy.
    this.live.addEventListener("instances", () => this.request());
    setInterval(() => performance.now() - this.requestedAt > INSTANCES_EVERY_MS && this.requestSoon(), INSTANCES_AT_MOST_EVERY_MS);
    this.request();
    this.live.start();
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
    if (this.isRequesting || document.hidden) return;
    this.isRequesting = true;
    this.requestedAt = performance.now();
    try {
      const answer = await fetch(`${this.prefix}/map/instances.json`, { headers: { Accept: "application/json" } });
      if (answer.ok && !answer.redirected) this.receive(await answer.json());
    } catch {
      // The console is unreachable: the page marks its data as stale, and the next request tries again.
    } finally {
      this.isRequesting = false;
      if (this.isOutdated) this.request();
    }
  }

  receive({ instances }) {
    this.instances = new Map(instances.map((instance) => [instance.index, instance]));
    this.emit("instances");
  }

  emit(type, detail = {}) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
