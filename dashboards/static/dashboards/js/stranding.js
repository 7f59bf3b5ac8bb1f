/* When a stranding must interrupt whoever listens: once when it begins, and once for each cause that joins it.
   Pure: no DOM, no clock. */

/** Nobody stranded for this long: the next stranding is a new one, and no flicker of this one. */
const OVER_MS = 30_000;

export class Strandings {
  /** settleMs: how long a cause may come after the counts. */
  constructor({ settleMs }) {
    this.settleMs = settleMs;
    /** Causes already told, or null while there is nothing to tell of. */
    this.told = null;
    this.since = null;
    this.overAt = null;
    this.seen = false;
  }

  /** Is this to be told now? What a page shows when it opens is read with it, and is no news. */
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
