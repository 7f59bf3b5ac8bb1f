/* What the map can be grouped by. Pure: columns and instances in, a key per agent and the blocks of these keys out. */

import { BACKEND, NO_INSTANCE, STATES, label } from "./fleet-state.js";

const byName = new Intl.Collator("en", { numeric: true });
/** Groupings whose key is the index of an instance: the column, the kind whose instances have a block even without
    agents, and the name of the block of agents without one. */
const BY_INSTANCE = {
  proxy: { column: "proxies", kind: "proxy", none: "No proxy known" },
  auth: { column: "auths", kind: "auth", none: "No auth known" },
  cause: { column: "causes", kind: null, none: "No cause" },
};
/** Groupings that the browser derives; every other one is requested from the server. */
export const LOCAL_GROUPINGS = [...Object.keys(BY_INSTANCE), "region", "state"];

/** Return a filter of the agent query language; names with spaces are quoted. */
export function term(key, text) {
  return /^[\w.:/@-]+$/.test(text) ? `${key}:${text}` : `"${key}:${text.replace(/["\\]/g, "\\$&")}"`;
}

/**
 * Return { keys, shown, describe }: the key of every agent's block, the keys of blocks that exist without agents, in
 * order, and describe(key) -> { name, instance, query }. `instance` is null if the block is no instance; `query` selects
 * its agents in the agent query language, or is "".
 * remote: of groupings.json, with its column, for a grouping that is not local.
 */
export function groupAgents(name, { state, instances, remote }) {
  if (name in BY_INSTANCE) return groupByInstance(name, BY_INSTANCE[name], state, instances);
  if (name === "region") return groupByRegion(state, instances);
  if (name === "state") return groupByState(state);
  return groupByRemote(name, remote, instances);
}

function groupByInstance(name, { column, kind, none }, state, instances) {
  const shown = [...instances.values()].filter((instance) => instance.kind === kind && instance.state !== "gone");
  const describe = (key) => {
    const instance = instances.get(key) ?? null;
    if (instance !== null) return { name: instance.name, instance, query: term(name, instance.name) };
    if (key === BACKEND) return { name: "Auth backend", instance: null, query: term(name, "backend") };
    return { name: key === NO_INSTANCE ? none : `Instance ${key}`, instance: null, query: "" };
  };
  return { keys: state[column], shown: shown.map(({ index }) => index), describe };
}

/** Group by the region of the current proxy. */
function groupByRegion(state, instances) {
  const regions = [...new Set([...instances.values()].map(({ region }) => region))].filter((region) => region !== "").sort(byName.compare);
  const regionOf = new Uint16Array(NO_INSTANCE + 1).fill(NO_INSTANCE);
  for (const [index, { region }] of instances) if (region !== "") regionOf[index] = regions.indexOf(region);
  const describe = (key) => ({ name: regions[key] ?? "No region known", instance: null, query: "" });
  return { keys: state.proxies.map((proxy) => regionOf[proxy]), shown: regions.map((_, number) => number), describe };
}

function groupByState(state) {
  const describe = (key) => ({ name: label(key), instance: null, query: term("state", STATES[key]) });
  return { keys: Uint16Array.from(state.states), shown: [], describe };
}

function groupByRemote(name, { groups, column }, instances) {
  const describe = (key) => {
    const group = groups[key];
    const instance = instances.get(group?.instance) ?? null;
    const query = group !== undefined && (name === "version" || name.startsWith("label.")) ? term(name, group.name) : "";
    return { name: group?.name ?? "None", instance, query };
  };
  return { keys: column, shown: [], describe };
}

/** Return the keys of all blocks in natural order of their names; agents without a group come last. */
export function orderKeys(keys, shown, describe) {
  const rank = (key) => (key === NO_INSTANCE ? 2 : key === BACKEND ? 1 : 0);
  const names = new Map([...new Set([...shown, ...keys])].map((key) => [key, describe(key).name]));
  return [...names.keys()].sort((one, other) => rank(one) - rank(other) || byName.compare(names.get(one), names.get(other)));
}
