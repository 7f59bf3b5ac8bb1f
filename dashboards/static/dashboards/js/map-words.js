/* What the map says in words: headers of blocks, the summary, and rows of the table. Pure. */

import { STATES, STRANDED, label } from "./fleet-state.js";

const number = new Intl.NumberFormat("en");
/** States in the order of the summary, and an imbalance below which nothing is said. */
const AT_RISK = STATES.indexOf("at_risk");
const BALANCED = 0.1;

/** Return "1 agent" or "1,234 agents". */
export function count(n, noun) {
  return `${number.format(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** Return the load of an instance in words, with the imbalance: "70 tunnels, 40 % above the mean". */
export function describeLoad(instance, imbalance) {
  if (instance === null) return "";
  const load = count(instance.load, instance.kind === "auth" ? "connected agent" : "tunnel");
  if (!instance.current) return `${load} (last known)`;
  if (imbalance === null || Math.abs(imbalance) < BALANCED) return load;
  return `${load}, ${Math.round(Math.abs(imbalance) * 100)} % ${imbalance > 0 ? "above" : "below"} the mean`;
}

/** Return the same as a short text for a header: "70 tunnels +40 %". */
export function shortLoad(instance, imbalance) {
  if (instance === null) return "";
  const load = count(instance.load, instance.kind === "auth" ? "agent" : "tunnel");
  if (!instance.current) return `${load} (last known)`;
  if (imbalance === null || Math.abs(imbalance) < BALANCED) return load;
  return `${load} ${imbalance > 0 ? "+" : "−"}${Math.round(Math.abs(imbalance) * 100)} %`;
}

/** Return the numbers of agents by state in words, without zeros, in the order of `ranks`: "50 stranded, 2 at risk". */
export function describeCounts(counts, ranks) {
  const states = [...counts.keys()].filter((state) => counts[state] > 0).sort((one, other) => ranks[one] - ranks[other]);
  return states.map((state) => `${number.format(counts[state])} ${label(state)}`).join(", ");
}

/** Return whether a block needs attention: its instance has a problem, or its agents have one. */
export function needsAttention({ instance, counts, isDead }) {
  return isDead || (instance !== null && instance.label !== "OK") || counts[STRANDED] > 0 || counts[AT_RISK] > 0;
}

/** Return the blocks that need attention: those whose instance is down, then by stranded agents, then by agents at risk. */
export function sortByUrgency(blocks) {
  const keys = [({ isDead }) => Number(isDead), ({ counts }) => counts[STRANDED], ({ counts }) => counts[AT_RISK]];
  const compare = (one, other) => keys.reduce((order, key) => order || key(other) - key(one), 0);
  return blocks.filter(needsAttention).sort(compare);
}

/** Return the state of a block in words: "proxy-1: not responding, 50 stranded". */
export function describeBlock(block, ranks) {
  const parts = [];
  if (block.instance !== null && block.instance.label !== "OK") parts.push(block.instance.label);
  if (block.counts[STRANDED] > 0) parts.push(`${number.format(block.counts[STRANDED])} stranded`);
  if (block.counts[AT_RISK] > 0) parts.push(`${number.format(block.counts[AT_RISK])} at risk`);
  if (parts.length === 0) parts.push(describeCounts(block.counts, ranks) || "no agents");
  return `${block.name}: ${parts.join(", ")}`;
}

/** Return the map in one or two sentences, for readers who do not see it. */
export function summarize({ blocks, total, groupLabel, perCell }) {
  const urgent = sortByUrgency(blocks);
  const head = `${count(total, "agent")} in ${count(blocks.length, "block")} by ${groupLabel}.`;
  const cells = perCell > 1 ? ` One cell stands for ${number.format(perCell)} agents.` : "";
  if (urgent.length === 0) return `${head} No block needs attention.${cells}`;
  const named = urgent.slice(0, 5).map((block) => describeBlock(block, [...STATES.keys()])).join("; ");
  const more = urgent.length > 5 ? `; and ${number.format(urgent.length - 5)} more` : "";
  return `${head} ${count(urgent.length, "block")} need${urgent.length === 1 ? "s" : ""} attention: ${named}${more}.${cells}`;
}
