/* The replay below the map: a slider that leaves the present and shows any recorded moment, with playback.
   docs/reference/map.md, *Replay*. */

import { declareKeys } from "./keys.js";
import { announce } from "./page.js";
import { pastMoment } from "./moment.js";
import { ReplayMarkers } from "./replay-markers.js";
import { RANGES, formatMoment, formatUtc, moveByKey, rangeAround } from "./replay-range.js";

/** Time without another movement after which the moment is requested; time between two steps of the playback. */
const SETTLE_MS = 150;
const STEP_EVERY_MS = 1_000;
/** How often the range of the present moves on, and how often its markers are requested. */
const MOVE_ON_EVERY_MS = 5_000;
const MARKERS_EVERY_MS = 30_000;

const stillness = window.matchMedia("(prefers-reduced-motion: reduce)");

export class Replay {
  /**
   * box: section of the page; load(at, onArrival): MapData.showMoment; onMoment: called when the page has entered another
   * moment, before its data is painted.
   */
  constructor(box, { prefix, load, onMoment }) {
    Object.assign(this, { prefix, load, onMoment });
    const find = (name) => box.querySelector(`#replay-${name}`);
    [this.slider, this.time, this.button, this.error, this.back] = ["slider", "time", "play", "error", "back"].map(find);
    this.ends = { start: find("start"), end: find("end") };
    this.rangeButtons = [...box.querySelectorAll("[data-range]")];
    this.markers = new ReplayMarkers({ lanes: find("lanes"), list: find("list") });
    /** Clock of the server: the clock of the browser may be wrong. */
    this.clockOffset = Number(box.dataset.currentMs) - performance.now();
    this.rangeName = "day";
    /** The moment that the page shows, and the moment that the slider is at; null: the present. */
    this.shownAt = pastMoment() === null ? null : Date.parse(pastMoment());
    this.at = this.shownAt;
    this.range = rangeAround(this.at ?? this.now, this.rangeName, this.now);
    this.isLoading = false;
    this.settleTimer = null;
    this.playTimer = null;
    this.markersRequestedAt = -Infinity;
    this.markersNumber = 0;
    this.listen();
  }

  get now() {
    return Math.floor(performance.now() + this.clockOffset);
  }

  listen() {
    this.slider.addEventListener("input", () => this.moveTo(this.range.start + Number(this.slider.value)));
    declareKeys("Replay slider, while it has the focus", [
      ["← or →", "Back or forward by 1 min"],
      ["PageDown or PageUp", "Back or forward by 10 min"],
      ["Home or End", "First or last moment of the range"],
    ]);
    this.slider.addEventListener("keydown", (event) => this.press(event));
    this.button.addEventListener("click", () => this.togglePlayback());
    for (const button of this.rangeButtons) button.addEventListener("click", () => this.setRange(button.dataset.range));
    stillness.addEventListener("change", () => {
      this.stop();
      this.paint();
    });
    // The range of the present ends now.
    setInterval(() => this.moveOn(), MOVE_ON_EVERY_MS);
  }

  /** Show the slider, and the moment of the address. */
  start() {
    this.paint();
    this.requestMarkers();
    if (this.shownAt !== null) this.request(pastMoment());
  }

  /** Set the address that "Back to now" leads to. */
  setPresentUrl(url) {
    this.back.href = url;
    document.getElementById("past-back").href = url;
  }

  moveOn() {
    if (this.at !== null || document.hidden) return;
    this.range = rangeAround(this.now, this.rangeName, this.now);
    this.paint();
    if (performance.now() - this.markersRequestedAt > MARKERS_EVERY_MS) this.requestMarkers();
  }

  /* What the user does */

  press(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const at = moveByKey(event.key, this.at ?? this.now, this.range, this.now);
    if (at === null) return;
    event.preventDefault();
    // In the present there is nothing later.
    if (this.at === null && at >= this.now) return;
    this.moveTo(at);
  }

  moveTo(at) {
    this.stop();
    this.place(at);
    clearTimeout(this.settleTimer);
    this.settleTimer = setTimeout(() => this.request(formatMoment(this.at)), SETTLE_MS);
  }

  /** Put the slider at a time; a range that does not contain it moves. */
  place(at) {
    this.at = Math.min(at, this.now);
    this.error.textContent = "";
    if (this.at < this.range.start || this.at > this.range.end) this.moveRange();
    this.paint();
  }

  setRange(name) {
    this.rangeName = name;
    this.moveRange();
    this.paint();
  }

  moveRange() {
    this.range = rangeAround(this.at ?? this.now, this.rangeName, this.now);
    this.requestMarkers();
  }

  togglePlayback() {
    if (this.playTimer !== null) {
      this.stop();
      this.paint();
      return;
    }
    // With reduced motion, the map changes only when the user says so.
    if (!stillness.matches) this.playTimer = setInterval(() => this.step(), STEP_EVERY_MS);
    this.step();
  }

  step() {
    if (this.isLoading || document.hidden) return;
    if (this.at === null) this.place(this.range.start);
    else if (this.at >= this.now - RANGES[this.rangeName].stepMs) {
      this.stop();
      this.paint();
      announce("The replay has reached the present.", { everyMs: 0 });
      return;
    } else this.place(this.at + RANGES[this.rangeName].stepMs);
    this.request(formatMoment(this.at));
  }

  stop() {
    clearInterval(this.playTimer);
    this.playTimer = null;
  }

  /* Data */

  async request(at) {
    clearTimeout(this.settleTimer);
    this.isLoading = true;
    this.paint();
    const problem = await this.load(at, (arrived) => this.enter(arrived));
    if (problem === null) return;
    this.isLoading = false;
    if (problem !== "") {
      this.stop();
      // The slider is where the map is.
      this.at = this.shownAt;
      if (this.at === null || this.at < this.range.start || this.at > this.range.end) this.moveRange();
      this.error.textContent = problem;
    }
    this.paint();
  }

  /** Make the page a page of the past: banner, time, links. */
  enter(at) {
    this.shownAt = Date.parse(at);
    const { body } = document;
    body.dataset.past = at;
    delete body.dataset.live;
    const text = formatUtc(this.shownAt);
    document.getElementById("past-banner").hidden = false;
    document.getElementById("past-title").textContent = `This is the past: ${text}.`;
    this.back.hidden = false;
    const age = document.querySelector(".age");
    for (const name of ["data-stale", "data-paused", "data-refresh"]) age.removeAttribute(name);
    age.toggleAttribute("data-past", true);
    age.querySelector("use").setAttribute("href", "#glyph-past");
    // The banner has the date; the bar has it where there is room.
    const [, date, time] = /^(\S+ )(.*)$/.exec(text);
    const dateSpan = document.createElement("span");
    dateSpan.className = "age-date";
    dateSpan.textContent = date;
    document.getElementById("age-text").replaceChildren("As of ", dateSpan, time);
    for (const link of document.querySelectorAll("a[data-moment]")) link.search = `?${new URLSearchParams({ at })}`;
    this.onMoment();
  }

  async requestMarkers() {
    this.markersRequestedAt = performance.now();
    this.markersNumber += 1;
    const { range, markersNumber: number } = this;
    const until = Math.min(range.end, this.now);
    try {
      const answer = await fetch(`${this.prefix}/map/markers.json?since=${formatMoment(range.start)}&until=${formatMoment(until)}`, { headers: { Accept: "application/json" } });
      if (!answer.ok || answer.redirected) return;
      const markers = await answer.json();
      if (number === this.markersNumber) this.markers.show(markers, range);
    } catch {
      // The console is unreachable: the markers of the last range stay away until the next request.
    }
  }

  /* Words */

  paint() {
    const { start, end } = this.range;
    const isPresent = this.at === null;
    const text = isPresent ? "Now" : formatUtc(this.at);
    this.slider.max = String(end - start);
    this.slider.value = String((this.at ?? end) - start);
    this.slider.setAttribute("aria-valuetext", text);
    this.time.textContent = text;
    this.time.toggleAttribute("data-loading", this.isLoading);
    this.ends.start.textContent = formatUtc(start);
    this.ends.end.textContent = end >= this.now - MOVE_ON_EVERY_MS ? "now" : formatUtc(end);
    for (const button of this.rangeButtons) button.setAttribute("aria-pressed", String(button.dataset.range === this.rangeName));
    const isPlaying = this.playTimer !== null;
    this.button.setAttribute("aria-pressed", String(isPlaying));
    this.button.querySelector("use").setAttribute("href", isPlaying ? "#glyph-pause" : "#glyph-play");
    this.button.lastElementChild.textContent = stillness.matches ? "Next step" : isPlaying ? "Pause replay" : "Play";
  }
}
