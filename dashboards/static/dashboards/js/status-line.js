/* The status line of Fleet now: the most urgent state, its number of agents, and the causes. The same rules as in
   dashboards/fleet/status_line.py, for live counts. Pure: no DOM, no clock. */

/** Maximum number of named causes in each list. */
const MAX_NAMED_CAUSES = 3;
/** States of agents that do not show whether the state of the fleet is known. */
const NOT_COUNTED = ["unknown", "retired", "never"];
const number = new Intl.NumberFormat("en");

/**
 * Return the text, and the slug of the state whose symbol and colours it has.
 * causes: [{ description, states }], states: slugs of the agents' states; headlines: states of the line, the worst first.
 */
export function describeStatus({ counts, causes, headlines, hasData, isStale }) {
  if (!hasData) return { state: "unknown", text: "No data yet: Refloat has not completed a poll of the fleet." };
  if (isStale) return { state: "unknown", text: "Agent states are unknown: the data is too old." };
  const worst = headlines.find(({ slug }) => counts[slug] > 0);
  if (worst === undefined) {
    const clauses = joinCauses(causes);
    return clauses === "" ? { state: "healthy", text: "No stranded agents." } : { state: "at_risk", text: `No stranded agents, but ${clauses}.` };
  }
  const worstClauses = joinCauses(causes.filter(({ states }) => states.includes(worst.slug)));
  const otherClauses = joinCauses(causes.filter(({ states }) => !states.includes(worst.slug)));
  let text = describeState(worst, counts) + (worstClauses === "" ? "." : `: ${worstClauses}.`);
  if (worst.slug === "unknown" && hasKnownAgents(counts)) text += " No other agents are stranded.";
  return { state: worst.slug, text: text + (otherClauses === "" ? "" : ` Also: ${otherClauses}.`) };
}

function describeState({ slug, label }, counts) {
  if (slug === "unknown" && !hasKnownAgents(counts)) return "Agent states are unknown";
  const agentCount = `${number.format(counts[slug])} agent${counts[slug] === 1 ? "" : "s"} ${label}`;
  return ["stranded", "unknown"].includes(slug) ? agentCount : `No stranded agents, but ${agentCount}`;
}

/** Whether the state of an agent that counts as the fleet is known. */
function hasKnownAgents(counts) {
  return Object.entries(counts).some(([slug, n]) => n > 0 && !NOT_COUNTED.includes(slug));
}

function joinCauses(causes) {
  const clauses = causes.slice(0, MAX_NAMED_CAUSES).map(({ description }) => description);
  const more = causes.length - clauses.length;
  if (more > 0) clauses.push(more === 1 ? "1 more cause is active" : `${more} more causes are active`);
  // "and" after a clause with a comma would look like a part of that clause.
  if (clauses.length < 2 || clauses.some((clause) => clause.includes(", "))) return clauses.join("; ");
  return `${clauses.slice(0, -1).join(", ")} and ${clauses.at(-1)}`;
}
