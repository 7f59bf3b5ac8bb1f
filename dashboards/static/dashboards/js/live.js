/* The live link: one WebSocket that keeps a FleetState equal to the server's, and reports whether the data is current.
   docs/reference/live.md, *Messages*. In doubt, it requests a new snapshot. */

import { FleetState } from "./fleet-state.js";
import { inflate } from "./inflate.js";
import { CLOCKS_DIFFER_MS } from "./page.js";

/** After this time without a frame, the data counts as stale (beats come every second). */
const SILENT_MS = 15_000;
/** After this time without a frame, the counts are polled over HTTP; and the interval of these polls. */
const POLL_AFTER_MS = 30_000;
const POLL_EVERY_MS = 10_000;
/** Grace period for the delta that a beat names: it may arrive after the beat. After that, it counts as lost. */
const OVERTAKE_MS = 1_000;
const BACKOFF_MS = [500, 30_000];
const SIGNED_OUT = 4401;
const NOT_ALLOWED = 4403;

/**
 * Events: "change" (detail.kind "snapshot", "delta", "stale" or "counts"; detail.changes of a delta),
 * "headline", "instances", "layout", "link".
 */
export class Live extends EventTarget {
  /**
   * prefix: "" or "/c/<cluster>"; cells: whether the page shows individual agents, not only counts; columns: whether
   * it shows where they are.
   */
  constructor({ prefix, cluster, cells, columns = false }) {
    super();
    this.state = new FleetState();
    /** The newest message `headline`, or null. Its counts belong to its text; those of `state` may be newer. */
    this.headline = null;
    this.cells = cells;
    /** "connecting", "open", "waiting" (for the next attempt), "signed-out", "not-allowed" or "suspended". */
    this.link = "connecting";
    this.retryAt = null;
    this.url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws${prefix}/fleet/${columns ? "?columns=1" : ""}`;
    this.summaryUrl = prefix === "" ? "/api/v1/fleet/summary" : `/api/v1/clusters/${cluster}/fleet/summary`;
    this.socket = null;
    this.failures = 0;
    this.retryTimer = null;
    /** Frames that arrived while a snapshot was being decompressed; null if none is. */
    this.backlog = null;
    this.overtakeTimer = null;
    /** performance.now() at the end of the newest poll, from the last frame. */
    this.concludedAt = null;
    /** Milliseconds by which the newest poll is dated in the server's future, from the last frame; 0 if it is not. */
    this.aheadMs = 0;
    this.heardAt = performance.now();
    this.polledAt = null;
    /** Whether the page shows the past: then nothing of the present arrives any more. */
    this.isSuspended = false;
  }

  start() {
    this.connect();
    setInterval(() => this.pollIfSilent(), 1_000);
    document.addEventListener("visibilitychange", () => this.wake());
    window.addEventListener("pageshow", (event) => event.persisted && this.wake());
    window.addEventListener("online", () => this.wake());
  }

  /** Number of agents by state, of the same round as the headline. */
  get counts() {
    return this.headline?.counts ?? this.state.counts;
  }

  /** Age of the data in ms, or null before the first data. */
  get ageMs() {
    return this.concludedAt === null ? null : Math.max(0, performance.now() - this.concludedAt);
  }

  /** Why the data is not current: "pollers" or "link"; null if it is current. */
  get distrust() {
    if (this.isSuspended) return null;
    const now = performance.now();
    const limit = Math.max(3 * this.state.intervalMs, 10_000);
    if (this.state.stale) return "pollers";
    if (now - this.heardAt > SILENT_MS) {
      const polled = !this.cells && this.polledAt !== null && now - this.polledAt < 2 * POLL_EVERY_MS;
      if (!polled) return "link";
    }
    return this.ageMs !== null && this.ageMs > limit ? "pollers" : null;
  }

  /** Stop for good: the page shows a past moment from now on, which no event may change. */
  suspend() {
    if (this.isSuspended) return;
    this.isSuspended = true;
    clearTimeout(this.retryTimer);
    clearTimeout(this.overtakeTimer);
    const { socket } = this;
    [this.socket, this.retryAt, this.backlog, this.overtakeTimer] = [null, null, null, null];
    socket?.close();
    [this.state.announced, this.concludedAt, this.aheadMs] = [null, null, 0];
    this.setLink("suspended");
  }

  /** Request a new hello and snapshot. */
  resync() {
    clearTimeout(this.overtakeTimer);
    this.overtakeTimer = null;
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send('{"type":"resync"}');
  }

  connect() {
    clearTimeout(this.retryTimer);
    this.retryAt = null;
    this.setLink("connecting");
    const socket = new WebSocket(this.url);
    socket.binaryType = "arraybuffer";
    socket.onmessage = (event) => socket === this.socket && this.receive(event.data);
    socket.onclose = (event) => socket === this.socket && this.closed(event.code);
    this.socket = socket;
  }

  closed(code) {
    this.state.announced = null;
    this.backlog = null;
    if (code === SIGNED_OUT || code === NOT_ALLOWED) {
      this.setLink(code === SIGNED_OUT ? "signed-out" : "not-allowed");
      return;
    }
    const [first, most] = BACKOFF_MS;
    const delay = Math.min(most, first * 2 ** this.failures) * (0.5 + Math.random() / 2);
    this.failures += 1;
    this.retryAt = performance.now() + delay;
    this.retryTimer = setTimeout(() => this.connect(), delay);
    this.setLink("waiting");
  }

  /** Start over after the tab was asleep: it may have missed events. */
  wake() {
    if (document.hidden || this.isSuspended || this.link === "signed-out" || this.link === "not-allowed") return;
    if (this.socket?.readyState === WebSocket.OPEN) this.resync();
    else if (this.link === "waiting") this.connect();
  }

  receive(data) {
    this.heardAt = performance.now();
    if (this.backlog !== null) this.backlog.push(data);
    else if (typeof data === "string") this.receiveMessage(data);
    else if (this.state.announced?.encoding === undefined) this.receiveSnapshot(data);
    else this.decompressSnapshot(data);
  }

  /** Decompress and apply a snapshot, then the frames that arrived meanwhile, in order. */
  async decompressSnapshot(data) {
    const backlog = [];
    this.backlog = backlog;
    const buffer = await inflate(data, this.state.announced.encoding).catch(() => new ArrayBuffer(0));
    // The socket was closed meanwhile.
    if (this.backlog !== backlog) return;
    this.backlog = null;
    this.receiveSnapshot(buffer);
    for (const frame of backlog) this.receive(frame);
  }

  receiveMessage(data) {
    const message = JSON.parse(data);
    if (typeof message.age_ms === "number") {
      this.concludedAt = this.heardAt - message.age_ms;
      this.aheadMs = message.age_ms < -CLOCKS_DIFFER_MS ? -message.age_ms : 0;
    }
    switch (message.type) {
      case "hello": this.state.hello(message); break;
      case "delta": this.receiveDelta(message); break;
      case "beat": this.receiveBeat(message); break;
      case "stale":
        this.state.expire(message);
        this.emit("change", { kind: "stale" });
        break;
      case "layout":
        this.emit("layout", { version: message.layout_version });
        this.resync();
        break;
      case "headline": this.receiveHeadline(message); break;
      case "instances": this.emit("instances"); break;
      case "incidents": window.dispatchEvent(new CustomEvent("refloat-incidents", { detail: message })); break;
      default: // Messages of a newer server are ignored.
    }
  }

  receiveHeadline(message) {
    this.headline = message;
    this.emit("headline");
    window.dispatchEvent(new CustomEvent("refloat-headline", { detail: message }));
  }

  receiveSnapshot(buffer) {
    if (!this.state.snapshot(buffer)) {
      this.resync();
      return;
    }
    this.failures = 0;
    this.setLink("open");
    this.emit("change", { kind: "snapshot" });
  }

  receiveDelta(message) {
    const verdict = this.state.delta(message);
    if (verdict === "applied") this.emit("change", { kind: "delta", changes: message.changes });
    else if (verdict === "gap") this.resync();
  }

  receiveBeat(message) {
    if (!this.state.behind(message)) {
      clearTimeout(this.overtakeTimer);
      this.overtakeTimer = null;
    } else if (this.overtakeTimer === null) {
      this.overtakeTimer = setTimeout(() => {
        this.overtakeTimer = null;
        if (this.state.behind(message)) this.resync();
      }, OVERTAKE_MS);
    }
  }

  /** Poll the counts over HTTP while the socket delivers nothing. */
  async pollIfSilent() {
    const now = performance.now();
    if (document.hidden || this.isSuspended || this.link === "signed-out" || now - this.heardAt < POLL_AFTER_MS) return;
    if (this.polledAt !== null && now - this.polledAt < POLL_EVERY_MS) return;
    this.polledAt = now;
    try {
      const answer = await fetch(this.summaryUrl, { headers: { Accept: "application/json" } });
      if (answer.status === 401) this.setLink("signed-out");
      const summary = answer.ok ? await answer.json() : null;
      if (summary !== null && !this.isSuspended) this.takeSummary(summary, answer.headers.get("Date"));
    } catch {
      // The console is unreachable: the data becomes stale, and the next poll tries again.
    }
  }

  /** Apply polled counts. The age comes from the server's clock, because the browser's may be wrong. */
  takeSummary(summary, date) {
    const asOf = Date.parse(summary.as_of);
    const serverNow = Date.parse(date);
    if (!Number.isNaN(asOf) && !Number.isNaN(serverNow)) {
      this.concludedAt = performance.now() - Math.max(0, serverNow - asOf);
    }
    this.state.counts = summary.counts;
    const { headline, counts, as_of } = summary;
    this.receiveHeadline({ ...headline, counts, as_of });
    this.emit("change", { kind: "counts" });
  }

  setLink(link) {
    this.link = link;
    this.emit("link");
  }

  emit(type, detail = {}) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
