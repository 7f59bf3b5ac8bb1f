/* The table twin of the map: blocks with their numbers. */

import { STATES, STRANDED } from "./fleet-state.js";
import { describeLoad } from "./map-words.js";
import { instanceUrl } from "./moment.js";

const AT_RISK = STATES.indexOf("at_risk");
const number = new Intl.NumberFormat("en");

/** Return the cells of a row: state, load, agents, stranded, at risk, other agents that are not healthy. */
function cellsOf({ instance, counts, size }) {
  const others = size - counts[STRANDED] - counts[AT_RISK] - counts[STATES.indexOf("healthy")];
  return [instance?.label ?? "", describeLoad(instance), ...[size, counts[STRANDED], counts[AT_RISK], others].map((n) => number.format(n))];
}

/** Write the name of a block: that of an instance links to its page, at the moment that the map shows. */
function writeName(cell, { name, instance }) {
  const link = cell.querySelector("a");
  if (instance === null) {
    if (link !== null || cell.textContent !== name) cell.textContent = name;
    return;
  }
  const made = link ?? document.createElement("a");
  if (link === null) cell.replaceChildren(made);
  if (made.textContent !== name) made.textContent = name;
  made.href = instanceUrl(instance.id);
}

/** Fill the table: one row per block. A row that stays keeps its element, so that a reader's position stays. */
export function fillTable(body, blocks) {
  const rows = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  blocks.forEach((block, at) => {
    let row = rows.get(String(block.key));
    rows.delete(String(block.key));
    if (row === undefined) {
      row = document.createElement("tr");
      row.dataset.key = String(block.key);
      row.append(Object.assign(document.createElement("th"), { scope: "row" }), ...Array.from({ length: 6 }, () => document.createElement("td")));
      for (const cell of [...row.cells].slice(3)) cell.className = "number";
    }
    writeName(row.cells[0], block);
    cellsOf(block).forEach((text, column) => {
      if (row.cells[column + 1].textContent !== text) row.cells[column + 1].textContent = text;
    });
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
  });
  for (const row of rows.values()) row.remove();
}
