/* What the map says of blocks in words. Pure. */

import { STATES, STRANDED, label } from "./fleet-state.js";

/** States of instances that are failures, and of those whose agents' last known state is in doubt. */
export const FAILED_STATES = new Set(["silent", "unhealthy", "expired", "gone"]);
export const SILENT_STATES = new Set(["silent", "expired", "gone"]);
/** What a rollout does with the instance that it restarts, as the headline names it. A campaign only moves agents away. */
const PLANNED_WORK = new Set(["draining", "restarting", "restarted"]);

const number = new Intl.NumberFormat("en");
const AT_RISK = STATES.indexOf("at_risk");

/** Return "1 agent", "1,234 agents" or "2 proxies". */
export function count(n, noun) {
  return `${number.format(n)} ${n === 1 ? noun : noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`}`;
}

/** Whether a rollout restarts an instance now: that it does not respond is expected. */
export function isPlanned({ work = "" }) {
  return PLANNED_WORK.has(work);
}

/** Whether an instance fails, and not because a rollout restarts it. */
export function isFailed(instance) {
  return FAILED_STATES.has(instance.state) && !isPlanned(instance);
}

/** Return symbol and class of an instance: while a change acts on it, those of the change, unless it fails. */
export function looksOf(instance) {
  const isWork = isPlanned(instance) || (Boolean(instance.work) && instance.label === "OK");
  return isWork ? { symbol: "working", class: "state-working" } : { symbol: instance.symbol, class: instance.class };
}

/** Return the state of an instance in words, with what a change does with it: "restarting, not responding". */
export function describeState({ label, work = "" }) {
  return [work, label === "OK" ? "" : label].filter(Boolean).join(", ") || label;
}

/** Return the load of an instance in words, with the imbalance: "70 tunnels, 40 % more than the average proxy". */
export function describeLoad(instance) {
  if (instance === null) return "";
  const load = count(instance.load, instance.kind === "auth" ? "connected agent" : "tunnel");
  if (!instance.current) return `${load} (last known)`;
  const { imbalance } = instance;
  if (imbalance === null) return load;
  return `${load}, ${Math.round(Math.abs(imbalance) * 100)} % ${imbalance > 0 ? "more" : "fewer"} than the average ${instance.kind}`;
}

/**
 * Return the number of agents of an instance, and the number that it reports if that differs: ["18 agents", "58 tunnels"],
 * ["no agents now, had 15 tunnels"]. Agents count once, at their current proxy; tunnels may be of any agent.
 */
function numbersOf(agents, instance) {
  const own = agents === 0 ? "no agents" : count(agents, "agent");
  const load = instance?.load ?? agents;
  if (load === agents || (load === 0 && !instance.current)) return [own];
  const isAuth = instance.kind === "auth";
  if (agents === 0 && !instance.current) return [`no agents now, had ${isAuth ? number.format(load) : count(load, "tunnel")}`];
  // Heartbeats and connections of an auth never count the same agents at one moment.
  if (isAuth) return [own];
  return [own, `${instance.current ? "" : "had "}${count(load, "tunnel")}`];
}

/** Return the same in one text: "18 agents · 58 tunnels". */
export function describeNumbers(agents, instance) {
  return numbersOf(agents, instance).join(" · ");
}

/** Return the same as parts of a header, with the imbalance: ["18 agents", " · 58 tunnels", " · 40 % over average"]. */
export function loadParts(agents, instance) {
  const imbalance = instance?.current && instance.load > 0 ? instance.imbalance : null;
  const parts = numbersOf(agents, instance);
  if (imbalance !== null) parts.push(`${Math.round(Math.abs(imbalance) * 100)} % ${imbalance > 0 ? "over" : "under"} average`);
  return parts.map((part, place) => (place > 0 ? ` · ${part}` : part));
}

/** Return the numbers of agents by state in words, without zeros, in the order of `ranks`: "50 stranded, 2 at risk". */
export function describeCounts(counts, ranks) {
  const states = [...counts.keys()].filter((state) => counts[state] > 0).sort((one, other) => ranks[one] - ranks[other]);
  return states.map((state) => `${number.format(counts[state])} ${label(state)}`).join(", ");
}

/** Return the state of a block in words: "proxy-1: not responding, 50 stranded". */
export function describeBlock(block, ranks) {
  const parts = [];
  const state = block.instance === null ? "OK" : describeState(block.instance);
  if (state !== "OK") parts.push(state);
  if (block.counts[STRANDED] > 0) parts.push(`${number.format(block.counts[STRANDED])} stranded`);
  if (block.counts[AT_RISK] > 0) parts.push(`${number.format(block.counts[AT_RISK])} at risk`);
  if (parts.length === 0) parts.push(describeCounts(block.counts, ranks) || "no agents");
  return `${block.name}: ${parts.join(", ")}`;
}
