/* The topology as a table: one row per edge, with the same numbers. */

const HEAD = ["Instance", "Agent group", "Agents", "Affected agents", "Connections"];

/** Return the rows of a flow whose columns are not folded: [instance, group, agents, affected agents, connections]. Pure. */
export function tableRows({ columns, edges }) {
  const nodes = new Map(Object.values(columns).flat().map((node) => [node.key, node]));
  const order = new Map([...nodes.keys()].map((key, position) => [key, position]));
  return [...edges]
    .sort((one, other) => order.get(one.from) - order.get(other.from) || order.get(one.to) - order.get(other.to) || other.failing - one.failing)
    .map((edge) => {
      const from = nodes.get(edge.from);
      const noun = edge.side === "proxy" ? "tunnels" : "auth connections";
      const reason = from.isFailing || from.isPlanned ? `: ${from.name} is ${from.status}` : "";
      const connection = edge.status === "unknown" ? from.name : `${noun} ${edge.status}${reason}`;
      return [from.name, nodes.get(edge.to).name, edge.agents, edge.failing, connection];
    });
}

/** Write the rows into the frame of the table. Rows stay the same elements. */
export function paintTable(frame, rows) {
  frame.firstElementChild ?? frame.append(createTable());
  const body = frame.querySelector("tbody");
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  rows.forEach((row, position) => {
    const line = body.rows[position] ?? createRow(body);
    row.forEach((value, column) => {
      const text = typeof value === "number" ? value.toLocaleString("en") : value;
      if (line.cells[column].textContent !== text) line.cells[column].textContent = text;
    });
    line.toggleAttribute("data-failing", row[3] > 0);
  });
}

function createTable() {
  const table = document.createElement("table");
  table.className = "table";
  table.createCaption().className = "sr";
  table.caption.textContent = "Tunnels and auth connections by instance and agent group";
  const head = table.createTHead().insertRow();
  for (const text of HEAD) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    head.append(cell);
  }
  table.createTBody();
  return table;
}

function createRow(body) {
  const line = body.insertRow();
  const first = document.createElement("th");
  first.scope = "row";
  line.append(first);
  for (const _ of HEAD.slice(1)) line.insertCell();
  return line;
}
