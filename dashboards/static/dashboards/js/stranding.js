/* When stranded agents are announced urgently: once when the first agent is stranded, and once for each new cause.
   Pure: no DOM, no clock. */

/** After this time without stranded agents, the next one counts as a new stranding. */
const OVER_MS = 30_000;

export class Strandings {
  /** settleMs: maximum time between the counts and the arrival of a cause. */
  constructor({ settleMs }) {
    this.settleMs = settleMs;
    /** Causes already announced, or null while no stranding is in progress. */
    this.told = null;
    this.since = null;
    this.overAt = null;
    this.seen = false;
  }

  /** Return whether to announce now. The first state of a page is not announced: it is read with the page. */
  isNews(stranded, causes, now) {
    const opened = !this.seen;
    this.seen = true;
    if (stranded === 0) {
      this.since = null;
      this.overAt ??= now;
      if (now - this.overAt >= OVER_MS) this.told = null;
      return false;
    }
    this.overAt = null;
    this.since ??= now;
    if (this.told === null && !opened && causes.length === 0 && now - this.since < this.settleMs) return false;
    const begins = this.told === null;
    this.told ??= new Set();
    const joined = causes.filter((cause) => !this.told.has(cause));
    for (const cause of joined) this.told.add(cause);
    return !opened && (begins || joined.length > 0);
  }
}
