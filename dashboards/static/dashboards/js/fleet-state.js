/* The browser's copy of the fleet: one state byte per agent, and the position in the event stream.
   Pure except for the list of agent states from the page: no socket, no clock. docs/reference/live.md, *Messages*.
   Invariant: an old snapshot plus all deltas after it equals a new snapshot. */

/** Agent states by their number in the wire protocol (fleet.vocabulary.verdicts.State). */
const VERDICTS = JSON.parse(document.getElementById("verdicts").textContent);
export const STATES = VERDICTS.map(({ slug }) => slug);
const number = (slug) => STATES.indexOf(slug);
const RETIRED = number("retired");
export const [UNKNOWN, STRANDED, HEALTHY] = ["unknown", "stranded", "healthy"].map(number);

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

  /** Apply the state bytes of the last `hello`. Return false if their number is wrong: request a new snapshot. */
  snapshot(buffer) {
    const message = this.announced;
    if (message === null || buffer.byteLength !== message.agents) return false;
    this.announced = null;
    this.cluster = message.cluster;
    this.epoch = message.epoch;
    this.seq = message.seq;
    this.layoutVersion = message.layout_version;
    this.intervalMs = message.interval_ms;
    this.stale = message.stale;
    this.states = new Uint8Array(buffer);
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
    for (const [index, state] of message.changes) this.states[index] = state;
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
    this.counts = { ...message.counts };
  }

  /** Return whether events are missing: a beat names the newest one. */
  behind(message) {
    return this.ready && (message.epoch !== this.epoch || message.seq > this.seq || message.stale !== this.stale);
  }
}
