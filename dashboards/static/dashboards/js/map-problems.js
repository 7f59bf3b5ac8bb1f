/* What is wrong in the fleet, by cause: failed instances, and the agents whose state they cause. Pure.
   The same in every grouping: agents that one auth strands look like noise in blocks by proxy. */

import { BACKEND, NO_INSTANCE, STATES, STRANDED } from "./fleet-state.js";
import { FAILED_STATES, count, describeState, isFailed, isPlanned } from "./map-words.js";

const AT_RISK = STATES.indexOf("at_risk");
const number = new Intl.NumberFormat("en");

/**
 * Return problems, the most urgent first, without instances that a rollout restarts: [{ key, name, kind, label, sentence, isDown, stranded, atRisk, auths, proxies }].
 * key: index of the instance, BACKEND, or NO_INSTANCE for affected agents without a cause; kind: "proxy", "auth",
 * "backend" or ""; label: what failed, in the words of the headline if that has the cause; auths, proxies: number of instances that fail because of it, which are no problems of their own.
 */
export function findProblems({ states, causes }, instances, headlineCauses = []) {
  const clauses = new Map(headlineCauses.map(({ key, name, description }) => [key.startsWith("backend/") ? BACKEND : name, description]));
  const byKey = new Map();
  const problemOf = (key) => {
    if (!byKey.has(key)) byKey.set(key, createProblem(key, instances.get(key), clauses));
    return byKey.get(key);
  };
  for (let agent = 0; agent < states.length; agent += 1) {
    const state = states[agent];
    if (state === STRANDED) problemOf(causes[agent]).stranded += 1;
    else if (state === AT_RISK) problemOf(causes[agent]).atRisk += 1;
  }
  const failing = [...instances.values()].filter((instance) => instance.label !== "OK" && instance.state !== "gone" && !isPlanned(instance));
  const isBackendDown = byKey.has(BACKEND) || failing.some(({ cause }) => cause === BACKEND);
  for (const instance of failing) {
    const cause = causeOf(instance, instances, isBackendDown && FAILED_STATES.has(instance.state));
    if (cause === null) problemOf(instance.index);
    else problemOf(cause)[instance.kind === "auth" ? "auths" : "proxies"] += 1;
  }
  const keys = [({ key }) => Number(key === BACKEND), ({ stranded }) => stranded, ({ atRisk }) => atRisk, ({ isDown }) => Number(isDown)];
  // Equals in the order of the instances: auths first, in natural order.
  const places = new Map([...instances.keys()].map((key, place) => [key, place]));
  const placeOf = ({ key }) => places.get(key) ?? instances.size;
  return [...byKey.values()].sort((one, other) => keys.reduce((order, key) => order || key(other) - key(one), 0) || placeOf(one) - placeOf(other));
}

/** Return what makes an instance fail, or null: the backend comes before the auths that it takes down. */
function causeOf(instance, instances, isBackendDown) {
  if (isBackendDown && (instance.kind === "auth" || (instance.cause ?? null) !== null)) return BACKEND;
  return instances.has(instance.cause) ? instance.cause : null;
}

function createProblem(key, instance, clauses) {
  const base = { key, name: "Unknown cause", kind: "", label: "", sentence: "", isDown: false, stranded: 0, atRisk: 0, auths: 0, proxies: 0 };
  if (key === BACKEND) return { ...base, name: "Auth backend", kind: "backend", label: clauses.get(BACKEND) ?? "failing", isDown: true };
  if (instance === undefined) return key === NO_INSTANCE ? base : { ...base, name: `Instance ${key}` };
  const { name, kind, sentence } = instance;
  // The headline says more than the state: "lost its backend" is the reason of "unhealthy", and then of "expired".
  const clause = isFailed(instance) && !instance.work ? clauses.get(name)?.replace(`${name} `, "").replace(/^is /, "") : undefined;
  const words = clause ?? describeState(instance);
  return { ...base, name, kind, label: words === "OK" ? "" : words, sentence, isDown: isFailed(instance) };
}

/** Return a problem in words, without its name: "not responding, 50 stranded". */
export function describeProblem({ label, stranded, atRisk, auths, proxies }) {
  const parts = label === "" ? [] : [label];
  if (stranded > 0) parts.push(`${number.format(stranded)} stranded`);
  if (atRisk > 0) parts.push(`${number.format(atRisk)} at risk`);
  const dependent = [[auths, "auth"], [proxies, "proxy"]].filter(([n]) => n > 0).map(([n, kind]) => count(n, kind));
  if (dependent.length > 0) parts.push(`${dependent.join(" and ")} fail${auths + proxies === 1 ? "s" : ""} with it`);
  return parts.join(", ") || "no agents affected";
}

/** Return the map in words, for readers who do not see it. */
export function summarize({ problems, blocks, total, groupLabel, perCell }) {
  const head = `${count(total, "agent")} in ${count(blocks.length, "block")} by ${groupLabel}.`;
  const cells = perCell > 1 ? ` One cell stands for ${number.format(perCell)} agents.` : "";
  if (problems.length === 0) return `${head} Nothing needs attention.${cells}`;
  const named = problems.slice(0, 5).map((problem) => `${problem.name}: ${describeProblem(problem)}`).join("; ");
  const more = problems.length > 5 ? `; and ${number.format(problems.length - 5)} more` : "";
  return `${head} Needs attention: ${named}${more}.${cells}`;
}
