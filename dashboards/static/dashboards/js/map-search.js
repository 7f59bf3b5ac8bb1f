/* Search: the server runs the agent query, the map highlights the agents that match. */

import { inflateText } from "./inflate.js";
import { addMoment } from "./moment.js";

/** Time after the last key, and minimum time between two searches because agents changed. */
const TYPING_MS = 250;
const CHANGES_MS = 2_000;

export class Search {
  /** field, result: elements of the query and of its result in words; onResult: called when `matches` has changed. */
  constructor(prefix, field, result, onResult) {
    this.prefix = prefix;
    this.field = field;
    this.result = result;
    this.onResult = onResult;
    /** One bit per agent, or null without a query; the number of matching agents. */
    this.bits = null;
    this.count = 0;
    this.timer = null;
    this.ranAt = -Infinity;
    this.number = 0;
    field.addEventListener("input", () => this.runIn(TYPING_MS));
  }

  get query() {
    return this.field.value.trim();
  }

  /** Return whether an agent matches; without a query, every agent does. */
  matches(agent) {
    return this.bits === null || ((this.bits[agent >> 3] ?? 0) >> (agent & 7)) % 2 === 1;
  }

  /** Search again, because agents changed. */
  refresh() {
    if (this.query !== "" && this.timer === null) this.runIn(Math.max(0, CHANGES_MS - (performance.now() - this.ranAt)));
  }

  runIn(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), ms);
  }

  async run() {
    this.timer = null;
    this.ranAt = performance.now();
    this.number += 1;
    const { query, number } = this;
    if (query === "") {
      this.show(null, 0, "");
      return;
    }
    try {
      const answer = await fetch(addMoment(`${this.prefix}/map/matches.json?q=${encodeURIComponent(query)}`), { headers: { Accept: "application/json" } });
      const content = await answer.json();
      if (answer.status === 400) throw new Error(content.detail);
      const bits = new Uint8Array(await inflateText(content.bits));
      if (number === this.number) this.show(bits, content.count, `${new Intl.NumberFormat("en").format(content.count)} match${content.count === 1 ? "" : "es"}`);
    } catch (error) {
      // The message of an invalid query says what is wrong; everything else means that the console did not answer.
      const text = error instanceof TypeError || error instanceof SyntaxError ? "The console does not respond: the search was not run." : error.message;
      if (number === this.number) this.show(null, 0, text, true);
    }
  }

  show(bits, count, text, isError = false) {
    [this.bits, this.count] = [bits, count];
    if (this.result.textContent !== text) this.result.textContent = text;
    this.result.classList.toggle("error", isError);
    this.field.toggleAttribute("aria-invalid", isError);
    this.onResult();
  }
}
