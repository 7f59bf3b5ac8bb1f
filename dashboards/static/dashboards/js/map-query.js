/* The address of the map, and queries for a selection. Pure. */

import { STATES } from "./fleet-state.js";
import { term } from "./map-groupings.js";

/** Maximum length of an address that a selection makes: proxies in front of the console accept 8 kB. */
const ADDRESS_MOST = 7_000;
/** Maximum length of a selection in the address of the map. */
const SELECTION_MOST = 2_000;

/** Return agent indices as numbers and ranges: "0,5-9". */
export function formatIndices(indices) {
  const parts = [];
  for (const index of [...indices].sort((one, other) => one - other)) {
    const last = parts.at(-1);
    if (last !== undefined && last[1] === index - 1) last[1] = index;
    else parts.push([index, index]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

/** Return the indices of such a text that are below `agents`; text that is none yields nothing. */
export function parseIndices(text, agents) {
  const indices = [];
  for (const part of text.split(",")) {
    const match = /^(\d{1,7})(?:-(\d{1,7}))?$/.exec(part);
    if (match === null) continue;
    const last = Math.min(Number(match[2] ?? match[1]), agents - 1);
    for (let index = Number(match[1]); index <= last; index += 1) indices.push(index);
  }
  return indices;
}

/** Return the view that an address names: { group, zoom, states, query, selection, epoch, isTable }. */
export function parseAddress(search) {
  const params = new URLSearchParams(search);
  const [epoch, selection = ""] = (params.get("selected") ?? "").split(":");
  return {
    group: params.get("group") ?? "",
    zoom: Math.max(0, Math.min(40, Math.trunc(Number(params.get("zoom")) || 0))),
    states: params.getAll("state").filter((slug) => STATES.includes(slug)),
    query: params.get("q") ?? "",
    proxy: params.get("proxy") ?? "",
    auth: params.get("auth") ?? "",
    epoch,
    selection,
    isTable: params.get("view") === "table",
  };
}

/** Return the query string of a view, without what is as usual; "" or "?…". */
export function formatAddress({ group, zoom, states, query, proxy, auth, epoch, selected, isTable }) {
  const params = new URLSearchParams();
  if (group !== "proxy") params.set("group", group);
  if (zoom > 0) params.set("zoom", String(zoom));
  for (const slug of states) params.append("state", slug);
  for (const [name, text] of [["q", query], ["proxy", proxy], ["auth", auth]]) if (text !== "") params.set(name, text);
  const indices = formatIndices(selected);
  if (indices !== "" && indices.length <= SELECTION_MOST) params.set("selected", `${epoch}:${indices}`);
  if (isTable) params.set("view", "table");
  const text = params.toString();
  return text === "" ? "" : `?${text}`;
}

/** Return the filter for the list of agents that shows what the map shows. */
export function listQuery({ states, query, proxy, auth }) {
  const params = new URLSearchParams();
  for (const slug of states) params.append("state", slug);
  for (const [name, text] of [["q", query], ["proxy", proxy], ["auth", auth]]) if (text !== "") params.set(name, text);
  const text = params.toString();
  return text === "" ? "" : `?${text}`;
}

/**
 * Return a query for a selection in the agent query language, or "" if none fits an address: the query of whole blocks,
 * otherwise the ids of the agents. blockQueries: of the blocks that the selection consists of, or null; ids: or null.
 */
export function selectionQuery(blockQueries, ids) {
  const isWhole = blockQueries !== null && blockQueries.length > 0 && blockQueries.every((query) => query !== "");
  const isOneKey = isWhole && new Set(blockQueries.map((query) => query.replace(/^"/, "").split(":")[0])).size === 1;
  const query = isOneKey ? blockQueries.join(" ") : ids === null ? "" : ids.map((id) => term("id", id)).join(" ");
  return encodeURIComponent(query).length <= ADDRESS_MOST ? query : "";
}
