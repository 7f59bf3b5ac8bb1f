/* What the topology shows: nodes in three columns (proxies, groups of agents, auths), and the tunnels and auth
   connections between them. Pure: counts in, nodes and edges with their words out. */

import { HEADLINES, NO_INSTANCE, STATES, label } from "./fleet-state.js";
import { term } from "./map-groupings.js";
import { FAILED_STATES, count, describeNumbers, describeState, isFailed, isPlanned, looksOf } from "./map-words.js";
import { findFailures } from "./topology-failures.js";

/** Columns from left to right, each with the noun of its nodes. */
export const COLUMNS = { proxy: "proxies", group: "agent groups", auth: "auths" };
/** With more nodes, a column names only those with problems, at most so many, and folds the others into one node. */
export const MAX_NAMED = 8;
const FOLD = "fold";
const NEVER = STATES.indexOf("never");
const OFFLINE = STATES.indexOf("offline");
const HEALTHY = STATES.indexOf("healthy");
const number = new Intl.NumberFormat("en");

/** States, the worst first. */
const BY_URGENCY = [
  ...HEADLINES.map(({ slug }) => STATES.indexOf(slug)),
  ...STATES.keys().filter((state) => state !== HEALTHY && HEADLINES.every(({ slug }) => slug !== STATES[state])),
  HEALTHY,
];
const URGENCY = STATES.map((_, state) => BY_URGENCY.indexOf(state));
/** States of agents that are a problem: those of the headline. */
const PROBLEMS = new Set(HEADLINES.map(({ slug }) => STATES.indexOf(slug)));

const URGENT = ["stranded", "at_risk"].map((slug) => STATES.indexOf(slug));

/** Number of agents by state. */
class Tally {
  constructor() {
    this.agents = 0;
    this.byState = new Map();
  }

  add({ state, agents }) {
    this.agents += agents;
    this.byState.set(state, (this.byState.get(state) ?? 0) + agents);
  }

  get worst() {
    return [...this.byState.keys()].reduce((worst, state) => (URGENCY[state] < URGENCY[worst] ? state : worst), HEALTHY);
  }

  /** The state that most agents have. */
  get usual() {
    return [...this.byState].reduce((usual, entry) => (entry[1] > usual[1] ? entry : usual), [HEALTHY, 0])[0];
  }

  /** Number of agents that are stranded or at risk. */
  get urgent() {
    return URGENT.reduce((sum, state) => sum + (this.byState.get(state) ?? 0), 0);
  }

  get problems() {
    return [...this.byState].reduce((sum, [state, agents]) => sum + (PROBLEMS.has(state) ? agents : 0), 0);
  }

  /** The states that are a problem, in words: "3 stranded, 1 at risk". */
  get words() {
    return [...this.byState]
      .filter(([state]) => PROBLEMS.has(state))
      .sort(([one], [other]) => URGENCY[one] - URGENCY[other])
      .map(([state, agents]) => `${number.format(agents)} ${label(state)}`)
      .join(", ");
  }
}

/**
 * Return { columns: { proxy: [node], group: [node], auth: [node] }, edges: [edge], failures: [failure], agents }; failures
 * are of all instances (topology-failures.js), also of those in a fold.
 *
 * counts: FlowCounts. instances: by index, see dashboards/fleet/map_instances.py. grouping: null for groups by state, or
 * { describe }: describe(key) returns name and query of a group. expanded: names of the columns that name all nodes.
 *
 * A node has key, column, name, symbol, tone (class), status, note (sentence), numbers (in words), agents, urgent (agents),
 * isFailing, isFold and filter. An edge has key, side ("proxy" or "auth"), from, to (keys), agents, status ("live", "moving",
 * "failing", "lost", "unknown"), tone, failing (number of agents), text and filter.
 */
export function buildFlow({ counts, instances, grouping = null, expanded = new Set() }) {
  const groups = new Map();
  const nodes = { proxy: new Map(), auth: new Map() };
  const strands = [];
  for (const instance of instances.values()) {
    // A deregistered instance is shown while it has agents, like its block; one that restarts comes back at once.
    if (instance.state !== "gone" || isPlanned(instance)) nodes[instance.kind]?.set(instance.index, new Tally());
  }
  for (const column of ["proxy", "auth"]) {
    for (const cell of counts.read(column)) {
      const group = grouping === null ? cell.state : cell.group;
      // Both sides have every agent.
      if (column === "auth") tallyOf(groups, group).add(cell);
      // These agents never had a tunnel or a connection.
      if (cell.state === NEVER) continue;
      tallyOf(nodes[column], cell.instance).add(cell);
      const instance = instances.get(cell.instance);
      const status = statusOf(column, cell, instance);
      strands.push({ ...cell, column, group, status, isBlamed: isBlamed(status, cell, instance) });
    }
  }
  const isPlaceKnown = [...nodes.proxy].some(([index, tally]) => index !== NO_INSTANCE && tally.agents > 0);
  const proxies = sortInstances([...nodes.proxy].map(([index, tally]) => describeInstance("proxy", index, tally, instances, isPlaceKnown)));
  const auths = sortInstances([...nodes.auth].map(([index, tally]) => describeInstance("auth", index, tally, instances, true)));
  const columns = {
    proxy: fold("proxy", proxies, expanded),
    // There are few states, and each of them says something.
    group: foldGroups(sortGroups([...groups].map(([group, tally]) => describeGroup(group, tally, grouping))), grouping, expanded),
    auth: fold("auth", auths, expanded),
  };
  const shown = new Map(Object.values(columns).flat().map((node) => [node.key, node]));
  const edges = [...mergeStrands(strands, shown)].map(([key, strand]) => describeEdge(key, strand, shown));
  return { columns, edges, failures: findFailures([...auths, ...proxies], strands), agents: [...groups.values()].reduce((sum, { agents }) => sum + agents, 0) };
}

function tallyOf(tallies, key) {
  if (!tallies.has(key)) tallies.set(key, new Tally());
  return tallies.get(key);
}

/* Nodes */

function describeInstance(column, index, tally, instances, isPlaceKnown) {
  const base = { key: `${column}:${index}`, column, agents: tally.agents, numbers: count(tally.agents, "agent"), urgent: tally.urgent, isFold: false };
  if (index === NO_INSTANCE) {
    const [name, note] = column === "auth"
      ? ["no known auth", "Refloat does not know the auth of these agents."]
      : isPlaceKnown
      ? ["no known proxy", "Refloat does not know the proxy of these agents."]
      : ["tunnels unknown", "No source of this cluster lists which agent has which tunnel."];
    return { ...base, name, note, symbol: "unknown", tone: "state-unknown", status: "", isFailing: false, isOk: true, isPlaceholder: true, filter: { [column]: index, query: `${column}:none` } };
  }
  const instance = instances.get(index) ?? { name: `instance ${index}`, symbol: "unknown", class: "instance-unknown", label: "unknown", sentence: "", state: "unknown" };
  const { symbol, class: tone } = looksOf(instance);
  return {
    ...base,
    name: instance.name,
    note: instance.sentence,
    symbol,
    tone,
    status: describeState(instance),
    words: tally.words,
    numbers: describeNumbers(tally.agents, instance),
    instance,
    isFailing: isFailed(instance),
    isPlanned: isPlanned(instance),
    isOk: instance.symbol === "ok",
    hasWork: Boolean(instance.work),
    filter: { [column]: index, query: term(column, nameInQuery(instance, instances)) },
  };
}

/** Return the name of an instance, or its id where another one has the same name. */
function nameInQuery(instance, instances) {
  for (const other of instances.values()) {
    if (other.name === instance.name && other.index !== instance.index) return instance.id;
  }
  return instance.name;
}

function describeGroup(group, tally, grouping) {
  const base = { key: `group:${group}`, column: "group", order: group, agents: tally.agents, numbers: count(tally.agents, "agent"), urgent: tally.urgent, isFold: false, isFailing: false, note: "" };
  const state = grouping === null ? group : tally.worst;
  const slug = STATES[state];
  const looks = { symbol: slug, tone: `state-${slug}`, urgency: URGENCY[state], isOk: !PROBLEMS.has(state) };
  if (grouping === null) return { ...base, ...looks, name: label(state), status: "", words: "", filter: { state, query: `state:${slug}` } };
  const { name, query } = grouping.describe(group);
  return { ...base, ...looks, name, status: "", words: tally.words, filter: { group, query } };
}

const byName = new Intl.Collator("en", { numeric: true });

/** In natural order of the names, so that a node keeps its place; agents without an instance last. */
function sortInstances(nodes) {
  return nodes.sort((one, other) => (one.isPlaceholder ?? false) - (other.isPlaceholder ?? false) || byName.compare(one.name, other.name));
}

/** The worst state first. */
function sortGroups(nodes) {
  return nodes.sort((one, other) => one.urgency - other.urgency || one.order - other.order);
}

function foldGroups(nodes, grouping, expanded) {
  return grouping === null ? nodes : fold("group", nodes, expanded);
}

/** Fold the nodes of a long column into one, except those with the worst problems. */
function fold(column, nodes, expanded) {
  if (nodes.length <= MAX_NAMED) return nodes;
  const folder = { key: `${column}:${FOLD}`, column, isFold: true, isFailing: false, agents: 0, numbers: "", urgent: 0, note: "", filter: null, status: "", words: "" };
  const closer = { ...folder, name: `Show fewer ${COLUMNS[column]}`, symbol: "", tone: "", folded: new Set() };
  const isTrouble = ({ isFailing, urgent, isPlaceholder }) => isFailing || urgent > 0 || isPlaceholder;
  if (expanded.has(column)) return [closer, ...nodes.filter(isTrouble), ...nodes.filter((node) => !isTrouble(node))];
  const worst = nodes
    .filter(isTrouble)
    .sort((one, other) => other.isFailing - one.isFailing || other.urgent - one.urgent)
    .slice(0, MAX_NAMED - 1);
  const rest = nodes.filter((node) => !worst.includes(node));
  const agents = rest.reduce((sum, node) => sum + node.agents, 0);
  const failing = rest.filter(({ isFailing }) => isFailing).length;
  const others = rest.filter(({ isOk }) => !isOk).length - failing;
  const words = [failing > 0 ? `${failing} failing` : "", others > 0 ? `${others} not ${column === "group" ? "healthy" : "OK"}` : ""].filter(Boolean).join(", ");
  const noun = worst.length > 0 ? "more" : COLUMNS[column];
  return [...nodes.filter((node) => worst.includes(node)), {
    ...folder,
    name: `${number.format(rest.length)} ${noun}, ${words || (column === "group" ? "none stranded" : "all OK")}`,
    symbol: words === "" ? "ok" : "at_risk",
    tone: words === "" ? "instance-ok" : "state-at_risk",
    isFailing: failing > 0,
    agents,
    numbers: count(agents, "agent"),
    urgent: rest.reduce((sum, { urgent }) => sum + urgent, 0),
    folded: new Set(rest.map(({ key }) => key)),
  }];
}

/* Edges */

/**
 * Return "live", "moving", "failing", "lost" or "unknown". A tunnel is lost when its agent is stranded because of the proxy;
 * an auth connection survives while the auth responds, although its agents are stranded. While a rollout restarts an
 * instance, its agents move to others.
 */
function statusOf(column, { state, isHarmed, instance: index }, instance) {
  if (index === NO_INSTANCE) return "unknown";
  if (isHarmed && (column === "proxy" || state === OFFLINE)) return "lost";
  if (instance !== undefined && isPlanned(instance) && !isHarmed) return FAILED_STATES.has(instance.state) ? "moving" : "live";
  if (instance?.cut_off) return "lost";
  return isHarmed || (instance !== undefined && isFailed(instance)) ? "failing" : "live";
}

/** Whether a connection fails because of an instance: the own host of an offline agent is the likely cause otherwise. */
function isBlamed(status, { state }, instance) {
  if (status !== "lost" && status !== "failing") return false;
  return state !== OFFLINE || (instance !== undefined && isFailed(instance));
}

/** Merge the strands between the same shown nodes, by key of the edge: { column, from, to, status, tally }. */
function mergeStrands(strands, shown) {
  const nodeOf = (key, column) => (shown.has(key) ? key : `${column}:${FOLD}`);
  const merged = new Map();
  for (const strand of strands) {
    const { column, status } = strand;
    const [from, to] = [nodeOf(`${column}:${strand.instance}`, column), nodeOf(`group:${strand.group}`, "group")];
    const key = `${from}|${to}|${status}`;
    if (!merged.has(key)) merged.set(key, { column, from, to, status, tally: new Tally() });
    merged.get(key).tally.add(strand);
  }
  return merged;
}

function describeEdge(key, { column, from, to, status, tally }, shown) {
  const [instance, group] = [shown.get(from), shown.get(to)];
  const isUnknown = instance.isPlaceholder ?? false;
  const worst = STATES[tally.worst];
  // Red is only for stranded agents: what fails without stranding any is amber.
  const tone = isUnknown ? "unknown" : status === "moving" ? "working" : status === "live" ? STATES[tally.usual] : worst === "stranded" || worst === "offline" ? worst : "at_risk";
  // Each agent has one edge on each side, whatever number of tunnels it has: the number is of agents.
  const connections = `${column === "proxy" ? "tunnels" : "auth connections"} ${status}${reasonOf(instance)}`;
  return {
    key,
    side: column,
    from,
    to,
    agents: tally.agents,
    failing: status === "lost" || status === "failing" ? tally.agents : 0,
    status,
    tone: `state-${tone}`,
    text: isUnknown ? `${count(tally.agents, "agent")} (${group.name}): ${instance.name}` : `${count(tally.agents, "agent")} at ${instance.name}, ${connections} (agents: ${group.name})`,
    filter: instance.isFold || group.isFold ? null : { ...instance.filter, ...group.filter, query: [instance.filter.query, group.filter.query].filter(Boolean).join(" ") },
  };
}

/** Return why the connections of an instance are not live, after a colon; "" if the instance is not why. */
function reasonOf({ name, note, status, isFailing, isPlanned: isRestarting, isFold }) {
  if (isFold || (!isFailing && !isRestarting)) return "";
  return isFailing && note !== "" ? `: ${note}` : `: ${name} is ${status}`;
}
