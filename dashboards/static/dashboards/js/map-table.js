/* The table twin of the map: blocks with their numbers. */

import { STATES, STRANDED } from "./fleet-state.js";
import { describeLoad } from "./map-words.js";

const AT_RISK = STATES.indexOf("at_risk");
const number = new Intl.NumberFormat("en");

/** Return the cells of a row: state, load, agents, stranded, at risk, other agents that are not healthy. */
function cellsOf({ instance, counts, size }) {
  const others = size - counts[STRANDED] - counts[AT_RISK] - counts[STATES.indexOf("healthy")];
  return [instance?.label ?? "", describeLoad(instance), ...[size, counts[STRANDED], counts[AT_RISK], others].map((n) => number.format(n))];
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
    [block.name, ...cellsOf(block)].forEach((text, column) => {
      if (row.cells[column].textContent !== text) row.cells[column].textContent = text;
    });
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
  });
  for (const row of rows.values()) row.remove();
}
