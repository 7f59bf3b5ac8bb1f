/* The selected agents, and what can be done with them on other pages. */

import { selectionQuery } from "./map-query.js";
import { count } from "./map-words.js";
import { addMoment, pastMoment } from "./moment.js";

/** Maximum number of agents whose ids are requested for an address. */
const IDS_MOST = 500;

/** Return the blocks that a selection consists of, or null if it does not consist of whole blocks. */
export function wholeBlocks(selected, blocks) {
  const touched = blocks.filter(({ slots }) => slots.some((agent) => selected.has(agent)));
  const size = touched.reduce((sum, block) => sum + block.size, 0);
  return size === selected.size ? touched : null;
}

export class Selection {
  /** bar: element with the number of agents and the links; names: Names; prefix: of the cluster's pages. */
  constructor(bar, { prefix, names, onClear }) {
    this.bar = bar;
    this.prefix = prefix;
    this.names = names;
    this.agents = new Set();
    this.number = 0;
    bar.querySelector("[data-clear]").addEventListener("click", onClear);
  }

  /** Select these agents; `add` keeps the others. */
  set(agents, add = false) {
    this.agents = add ? new Set([...this.agents, ...agents]) : new Set(agents);
  }

  /** Show the number of selected agents, and link the actions. */
  async show(blocks) {
    this.number += 1;
    const { number, agents } = this;
    this.bar.hidden = agents.size === 0;
    if (agents.size === 0) return;
    this.bar.querySelector("[data-number]").textContent = `${count(agents.size, "agent")} selected`;
    const whole = wholeBlocks(agents, blocks);
    const query = selectionQuery(whole?.map((block) => block.query) ?? null, null);
    const found = query !== "" || agents.size > IDS_MOST ? null : await this.names.all([...agents]);
    if (number !== this.number) return;
    this.link(query || selectionQuery(null, found?.map(({ id }) => id) ?? null), this.silenceMatcher(whole, found));
  }

  /** Silences match one agent by its name, or the incidents with one cause. */
  silenceMatcher(whole, found) {
    if (found?.length === 1) return `agent=${quote(found[0].name)}`;
    const instance = whole?.length === 1 ? whole[0].instance : null;
    return instance === null ? "" : `cause=${quote(instance.name)}`;
  }

  link(query, matcher) {
    // The past can be listed; nothing can be done from it.
    const isPast = pastMoment() !== null;
    const addresses = {
      list: query === "" ? "" : addMoment(`${this.prefix}/agents/?${new URLSearchParams({ q: query })}`),
      reconnect: isPast || query === "" ? "" : `${this.prefix}/reconnect/?${new URLSearchParams({ q: query })}`,
      silence: isPast || matcher === "" ? "" : `${this.prefix}/silences/new/?${new URLSearchParams({ matchers: matcher })}`,
    };
    for (const [name, address] of Object.entries(addresses)) {
      const link = this.bar.querySelector(`[data-action="${name}"]`);
      if (link === null) continue;
      link.hidden = address === "";
      if (address !== "") link.href = address;
    }
    const hint = this.bar.querySelector("[data-hint]");
    hint.textContent = query === "" ? "Too many agents for a link: select fewer agents, or whole blocks." : matcher === "" && !isPast ? "A silence covers one agent, or one block." : "";
  }
}

function quote(text) {
  return /^[\w.:/@-]+$/.test(text) ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
}
