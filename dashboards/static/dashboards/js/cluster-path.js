/* The address of a page in another cluster. Pure. */

/** Pages with further pages below them that every cluster has. Other pages below a list are about one object. */
const NESTED = ["alerts", "history"];
/** Parameters that mean the same in every cluster. Queries name instances, so they stay behind. */
const SHARED = ["at", "since", "until", "tab"];

/** Return the address of the page in another cluster; of an object, the list that has it. `prefix`: "" or "/c/NAME". */
export function pathInCluster({ pathname, search }, prefix, otherPrefix) {
  const inside = prefix !== "" && pathname.startsWith(`${prefix}/`) ? pathname.slice(prefix.length) : pathname;
  const [first, second] = inside.split("/").filter((part) => part !== "");
  // Pages of the whole installation belong to no cluster.
  if (first === undefined || ["clusters", "tokens", "accounts", "setup", "c"].includes(first)) return `${otherPrefix}/`;
  const hasSecond = NESTED.includes(first) && second !== undefined && /^[a-z]+$/.test(second);
  const parameters = new URLSearchParams([...new URLSearchParams(search)].filter(([name]) => SHARED.includes(name)));
  const query = parameters.size > 0 ? `?${parameters}` : "";
  return `${otherPrefix}/${first}/${hasSecond ? `${second}/` : ""}${query}`;
}
