/* What the topology says fails: instances, and connections of agents, in one line. Pure. */

import { count, describeNumbers } from "./map-words.js";

/** Length up to which the line describes several failures; otherwise it has their names, at most so many. */
const MAX_LENGTH = 90;
const MAX_NAMES = 7;
const NOUNS = { proxy: "tunnels", auth: "auth connections" };

/**
 * Return [{ key, name, column, isFailing, text }, ...] of instances that fail or whose connections fail: auths before
 * proxies, each in the order of `nodes`, which are all instances, not folded.
 *
 * strands: connections with column, instance, status, agents, and whether an instance is to blame (isBlamed).
 */
export function findFailures(nodes, strands) {
  const numbers = new Map();
  for (const { column, instance, status, agents, isBlamed } of strands) {
    if (!isBlamed) continue;
    const key = `${column}:${instance}`;
    if (!numbers.has(key)) numbers.set(key, { lost: 0, failing: 0 });
    numbers.get(key)[status] += agents;
  }
  return ["auth", "proxy"].flatMap((column) =>
    nodes.filter((node) => node.column === column && (node.isFailing || numbers.has(node.key))).map((node) => describeFailure(node, numbers.get(node.key))),
  );
}

function describeFailure({ key, name, column, isFailing, isOk, hasWork, status, agents, instance }, { lost, failing } = { lost: 0, failing: 0 }) {
  const parts = [[lost, "lost"], [failing, "failing"]].filter(([n]) => n > 0).map(([n, word]) => `${NOUNS[column]} of ${count(n, "agent")} ${word}`);
  const state = isOk && !hasWork ? "" : ` (${status})`;
  return { key, name, column, isFailing, text: `${name}${state}: ${parts.join(", ") || describeNumbers(agents, instance)}` };
}

/** Return all failures in one line: details of a few, otherwise the number and the names. */
export function summarizeFailures(failures) {
  if (failures.length === 0) return "No failing tunnels or auth connections";
  // The instances first: connections of agents may fail a little longer than the instance.
  const failing = failures.filter(({ isFailing }) => isFailing);
  const main = failing.length > 0 ? failing : failures;
  const texts = main.map(({ text }) => text).join(" · ");
  if (main.length === 1 || texts.length <= MAX_LENGTH) return texts;
  const kinds = ["auth", "proxy"]
    .map((column) => [main.filter((failure) => failure.column === column).length, column])
    .filter(([n]) => n > 0)
    .map(([n, column]) => count(n, column))
    .join(" and ");
  const names = main.slice(0, MAX_NAMES).map(({ name }) => name);
  const more = main.length > MAX_NAMES ? ` and ${count(main.length - MAX_NAMES, "other")}` : "";
  return `${failing.length > 0 ? `${kinds} failing` : `Failing connections to ${kinds}`}: ${names.join(", ")}${more}`;
}
