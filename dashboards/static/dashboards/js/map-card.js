/* The card beside the map: the agent or block at the cursor or the pointer, otherwise what needs attention. */

import { STATES, label } from "./fleet-state.js";
import { describeProblem } from "./map-problems.js";
import { count, describeBlock, describeCounts, describeLoad } from "./map-words.js";
import { addMoment, instanceUrl } from "./moment.js";
import { adoptTimes, fetchPart } from "./page.js";

/** Time that the pointer or cursor must rest before the details are requested; minimum time between two requests. */
const REST_MS = 150;
const REFRESH_MS = 1_000;
/** Maximum number of problems in the overview. */
const PROBLEMS_MOST = 6;

/** Return the URL of an agent's page, at the moment of this page. query: "" or "?…". */
export function agentUrl(prefix, id, query = "") {
  return addMoment(`${prefix}/agents/${encodeURIComponent(id)}/${query}`);
}

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

function stateLine(className, symbolName, text) {
  const line = element("p", className);
  line.innerHTML = '<svg class="shape" aria-hidden="true"><use/></svg> <span></span>';
  line.querySelector("use").setAttribute("href", `#shape-${symbolName}`);
  line.lastElementChild.textContent = text;
  return line;
}

/** Return the name of an instance as a heading that links to its page. */
function linkedHeading({ name, instance }) {
  const heading = element("h2", "");
  const link = element("a", "instance-name", name);
  link.href = instanceUrl(instance.id);
  heading.append(link);
  return heading;
}

/** Return a change in progress: a link to its page, and how far it is. */
function changeItem({ kind, number, path, text, total_count: total, finished_count: finished }) {
  const item = element("div", "card-change");
  const link = element("a", "", `${kind[0].toUpperCase()}${kind.slice(1)} ${number}`);
  link.href = path;
  // The name of the change is the link already.
  const rest = text.replace(`${link.textContent}, `, "");
  item.append(link, element("p", "", `${rest[0].toUpperCase()}${rest.slice(1)}`));
  if (total > 0) {
    const bar = element("progress", "");
    [bar.max, bar.value] = [total, finished];
    bar.setAttribute("aria-label", `${link.textContent}: ${finished} of ${total}`);
    item.append(bar);
  }
  return item;
}

export class Card {
  /** body: the element to fill; names: Names; ranks: of states; onProblem(problem): called when the user selects one. */
  constructor(body, { prefix, names, ranks, onProblem }) {
    this.body = body;
    this.prefix = prefix;
    this.names = names;
    this.ranks = ranks;
    this.onProblem = onProblem;
    /** "overview", "block KEY", "cell KEY CELL" or "agent INDEX": what the card shows. */
    this.subject = "";
    this.fetchedAt = -Infinity;
    this.timer = null;
  }

  /**
   * Show changes in progress, and what needs attention: failed instances, and the agents that each strands.
   * changes: as in the headline.
   */
  showOverview(problems, changes) {
    const texts = problems.slice(0, PROBLEMS_MOST).map(describeProblem);
    const running = changes.filter(({ is_running }) => is_running);
    if (!this.begin("overview", [...texts, problems.length, ...running.map(({ text }) => text)].join("\n"))) return;
    const inProgress = running.length === 0 ? [] : [element("h2", "", "In progress"), ...running.map(changeItem)];
    const title = element("h2", "", "Needs attention");
    if (problems.length === 0) {
      this.body.replaceChildren(...inProgress, title, element("p", "quiet", "Nothing needs attention."));
      return;
    }
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.problem : undefined;
    const list = element("ul", "card-problems");
    problems.slice(0, PROBLEMS_MOST).forEach((problem, at) => {
      const button = element("button", `card-problem${problem.isDown ? " card-problem-down" : ""}${problem.stranded > 0 ? " card-problem-stranding" : ""}`);
      button.type = "button";
      button.dataset.problem = problem.name;
      button.addEventListener("click", () => this.onProblem(problem));
      button.append(element("b", "", problem.name), element("span", problem.stranded > 0 ? "card-stranded" : "", texts[at]));
      const item = document.createElement("li");
      item.append(button);
      if (problem.sentence !== "") item.append(element("p", "quiet", problem.sentence));
      list.append(item);
    });
    const more = problems.length - PROBLEMS_MOST;
    this.body.replaceChildren(...inProgress, title, list, ...(more > 0 ? [element("p", "quiet", `And ${count(more, "more problem")}.`)] : []));
    // The numbers change with every round: the focus stays on the problem.
    [...list.querySelectorAll("button")].find((button) => button.dataset.problem === focused)?.focus({ preventScroll: true });
  }

  /** Show a block. */
  showBlock(block) {
    const parts = [describeBlock(block, this.ranks), describeCounts(block.counts, this.ranks), describeLoad(block.instance), block.instance?.sentence ?? ""];
    if (!this.begin(`block ${block.key}`, parts.join("\n"))) return;
    const lines = [block.instance === null ? element("h2", "", block.name) : linkedHeading(block)];
    if (block.instance !== null) lines.push(stateLine(`card-state ${block.instance.class}`, block.instance.symbol, block.instance.label));
    for (const text of parts.slice(1)) if (text !== "") lines.push(element("p", "", text));
    this.body.replaceChildren(...lines);
  }

  /** Show a cell of several agents: the number by state. */
  showCell(block, cell, agents, states) {
    const counts = new Int32Array(STATES.length);
    for (const agent of agents) counts[states[agent]] += 1;
    const text = describeCounts(counts, this.ranks);
    if (!this.begin(`cell ${block.key} ${cell}`, text)) return;
    this.body.replaceChildren(element("h2", "", count(agents.length, "agent")), element("p", "quiet", block.name), element("p", "", text), element("p", "quiet", "Zoom in to see each agent."));
  }

  /** Show an agent: its name, state and block at once, the rest when it arrives. */
  showAgent(agent, state, block) {
    const isNew = this.begin(`agent ${agent}`, `${state} ${block.key} ${this.names.nameOf(agent)}`);
    if (!isNew) return;
    if (!this.isSame) {
      this.body.replaceChildren(element("h2", "", this.names.nameOf(agent) || "…"), stateLine(`card-state state-${STATES[state]}`, STATES[state], label(state)), element("p", "quiet", block.name));
      this.fetchedAt = -Infinity;
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fetchAgent(agent), this.isSame ? Math.max(0, this.fetchedAt + REFRESH_MS - performance.now()) : REST_MS);
  }

  /** Fetch the shown agent again: its verdict may have changed. */
  refresh(changedAgents) {
    const agent = this.agent;
    if (agent === null || (changedAgents !== null && !changedAgents.has(agent))) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fetchAgent(agent), Math.max(0, this.fetchedAt + REFRESH_MS - performance.now()));
  }

  /** The agent that the card shows, or null. */
  get agent() {
    return this.subject.startsWith("agent ") ? Number(this.subject.slice(6)) : null;
  }

  /** Note what the card shows; return whether anything differs. */
  begin(subject, content) {
    this.isSame = subject === this.subject;
    if (this.isSame && content === this.content) return false;
    if (!this.isSame) clearTimeout(this.timer);
    [this.subject, this.content] = [subject, content];
    return true;
  }

  async fetchAgent(agent) {
    const found = await this.names.all([agent]);
    if (this.agent !== agent || found === null) return;
    this.fetchedAt = performance.now();
    const card = await fetchPart(agentUrl(this.prefix, found[0].id, "?card"), "agent-card").catch(() => null);
    if (this.agent !== agent || card === null) return;
    this.body.replaceChildren(card);
    adoptTimes(this.body);
  }
}
