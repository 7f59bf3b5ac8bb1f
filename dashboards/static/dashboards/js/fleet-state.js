/* The browser's copy of the fleet: one state byte per agent, on the map also where it is, and the position in the event
   stream.
   Pure except for the list of agent states from the page: no socket, no clock. docs/reference/live.md, *Messages*.
   Invariant: an old snapshot plus all deltas after it equals a new snapshot. */

/** Agent states by their number in the wire protocol (fleet.vocabulary.verdicts.State). */
const VERDICTS = JSON.parse(document.getElementById("verdicts").textContent);
export const STATES = VERDICTS.map(({ slug }) => slug);
/** The states that headlines mention, the worst first. */
export const HEADLINES = VERDICTS.filter(({ headline }) => headline > 0).sort((a, b) => a.headline - b.headline);
const number = (slug) => STATES.indexOf(slug);
const RETIRED = number("retired");
export const [UNKNOWN, STRANDED, HEALTHY] = ["unknown", "stranded", "healthy"].map(number);

/** In a column of instances: no instance, and the auth backend of the cluster. */
export const NO_INSTANCE = 0xffff;
export const BACKEND = 0xfffe;

/** Return the columns of a frame by name, or null if its size is wrong. `state` has one byte per agent, others two. */
function splitColumns(buffer, names, agents) {
  const columns = {};
  let offset = 0;
  for (const name of names) {
    const Column = name === "state" ? Uint8Array : Uint16Array;
    if (offset + agents * Column.BYTES_PER_ELEMENT > buffer.byteLength) return null;
    columns[name] = new Column(buffer, offset, agents);
    offset += agents * Column.BYTES_PER_ELEMENT;
  }
  return offset === buffer.byteLength ? columns : null;
}

/** Return the colour of a state in the light theme. */
export const colour = (slug) => VERDICTS[number(slug)].colour;

/** Return the label of a state. */
export function label(state) {
  return VERDICTS[state].label;
}

export class FleetState {
  constructor() {
    this.cluster = null;
    this.epoch = null;
    this.seq = -1;
    this.layoutVersion = null;
    this.intervalMs = 5000;
    this.stale = false;
    this.states = null;
    /**
     * Only on the map: by agent, the index of its current proxy; of its auth; and of
     * the cause of its state. NO_INSTANCE: none or not known. BACKEND: the auth backend of the cluster.
     */
    this.proxies = null;
    this.auths = null;
    this.causes = null;
    this.counts = {};
    /** The `hello` message whose binary frame has not arrived yet. */
    this.announced = null;
  }

  /** Whether a snapshot has arrived and no `hello` waits for its binary frame. */
  get ready() {
    return this.states !== null && this.announced === null;
  }

  /** Store a `hello` message: it describes the next binary frame. */
  hello(message) {
    this.announced = message;
  }

  /**
   * Apply the states of the last `hello`, or all of its columns, decompressed. Return false if their size is wrong:
   * request a new snapshot.
   */
  snapshot(buffer) {
    const message = this.announced;
    if (message === null) return false;
    const columns = splitColumns(buffer, message.columns ?? ["state"], message.agents);
    if (columns === null) return false;
    this.announced = null;
    this.cluster = message.cluster;
    this.epoch = message.epoch;
    this.seq = message.seq;
    this.layoutVersion = message.layout_version;
    this.intervalMs = message.interval_ms;
    this.stale = message.stale;
    this.states = columns.state;
    this.proxies = columns.proxy ?? null;
    this.auths = columns.auth ?? null;
    this.causes = columns.cause ?? null;
    this.counts = { ...message.counts };
    return true;
  }

  /**
   * Apply the changes of one poll.
   * Return "applied", "old" (in the snapshot already), "waiting" (for a snapshot) or "gap" (request a snapshot).
   */
  delta(message) {
    if (!this.ready) return "waiting";
    if (message.epoch !== this.epoch || this.stale) return "gap";
    if (message.seq <= this.seq) return "old";
    if (message.seq !== this.seq + 1) return "gap";
    const length = this.states.length;
    // An agent beyond the end of the vector: the layout grew, and the layout message was lost or has not arrived yet.
    if (message.changes.some(([index]) => index >= length)) return "gap";
    for (const [index, state, proxy, auth, cause] of message.changes) {
      this.states[index] = state;
      if (this.proxies === null) continue;
      this.proxies[index] = proxy;
      this.auths[index] = auth;
      this.causes[index] = cause;
    }
    this.seq = message.seq;
    this.counts = { ...message.counts };
    return "applied";
  }

  /** Set all agents except retired ones to unknown, because the data is too old. */
  expire(message) {
    this.stale = true;
    if (this.states === null) return;
    for (let index = 0; index < this.states.length; index += 1) {
      if (this.states[index] !== RETIRED) this.states[index] = UNKNOWN;
    }
    this.causes?.fill(NO_INSTANCE);
    this.counts = { ...message.counts };
  }

  /** Return whether events are missing: a beat names the newest one. */
  behind(message) {
    return this.ready && (message.epoch !== this.epoch || message.seq > this.seq || message.stale !== this.stale);
  }
}
