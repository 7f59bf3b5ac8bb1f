/* What the browser knows of a fleet: one state byte per agent, and the place in the event stream.
   Pure but for the list of verdicts, which the page hands over: no socket, no clock. docs/live.md, *Wire protocol*.
   Law: an old snapshot and the deltas after it equal a fresh snapshot. */

/** Verdicts by their number on the wire (fleet.vocabulary.verdicts.State). */
const VERDICTS = JSON.parse(document.getElementById("verdicts").textContent);
export const STATES = VERDICTS.map(({ slug }) => slug);
/** The ones that a sentence on the fleet names, the worst first. */
export const HEADLINES = VERDICTS.filter(({ headline }) => headline > 0).sort((a, b) => a.headline - b.headline);
const number = (slug) => STATES.indexOf(slug);
const RETIRED = number("retired");
export const [UNKNOWN, STRANDED, HEALTHY] = ["unknown", "stranded", "healthy"].map(number);

/** The colour of a verdict on a light page. */
export const colour = (slug) => VERDICTS[number(slug)].colour;

/** The word for a state, as people read it. */
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
    /** The `hello` whose binary frame is still to come. */
    this.announced = null;
  }

  /** A snapshot is here and no `hello` waits for its bytes. */
  get ready() {
    return this.states !== null && this.announced === null;
  }

  /** Remember what the next binary frame is. */
  hello(message) {
    this.announced = message;
  }

  /** Take the state bytes of the last `hello`. False when they do not fit it: ask again. */
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
   * Apply one round's changes.
   * "applied"; "old": the snapshot already holds it; "waiting": a snapshot is under way; "gap": ask for one.
   */
  delta(message) {
    if (!this.ready) return "waiting";
    if (message.epoch !== this.epoch || this.stale) return "gap";
    if (message.seq <= this.seq) return "old";
    if (message.seq !== this.seq + 1) return "gap";
    const length = this.states.length;
    // An agent beyond the vector: the layout grew, and its announcement was lost or is still to come.
    if (message.changes.some(([index]) => index >= length)) return "gap";
    for (const [index, state] of message.changes) this.states[index] = state;
    this.seq = message.seq;
    this.counts = { ...message.counts };
    return "applied";
  }

  /** The data is too old: everything reads unknown, but what an operator said. */
  expire(message) {
    this.stale = true;
    if (this.states === null) return;
    for (let index = 0; index < this.states.length; index += 1) {
      if (this.states[index] !== RETIRED) this.states[index] = UNKNOWN;
    }
    this.counts = { ...message.counts };
  }

  /** A beat names the newest event; true when one of them never came. */
  behind(message) {
    return this.ready && (message.epoch !== this.epoch || message.seq > this.seq || message.stale !== this.stale);
  }
}
