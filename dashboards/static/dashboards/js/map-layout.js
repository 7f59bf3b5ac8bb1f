/* The position of every agent on the map. Pure: numbers in, numbers out.
   One block per home proxy. Within a block, agents are in the order of their index, which never changes: a cell that
   changes its colour is always an agent that changes its state. */

/** Maximum and minimum size of a cell, px. With cells of minimum size, the map may be taller than the window. */
const CELL_MOST = 28;
const CELL_LEAST = 4;
/** Space in px, rounded up to whole cells: between blocks, above the first row of blocks, and above the other rows. */
const GUTTER = 14;
const TITLE = 20;
const BETWEEN = 28;
/** Minimum width of a block, px: its title needs it. */
const BLOCK_LEAST = 96;
/** Minimum and maximum ratio of width to height of a block. */
const SHAPES = [1.1, 5];

const byName = new Intl.Collator("en", { numeric: true });

/**
 * Group agents by home proxy: [{id, name, agents: [index, ...]}, ...].
 * In natural order, proxy-2 before proxy-10; agents without a home proxy come last.
 */
export function groupByHome(homes, blocks) {
  const groups = blocks.map(([id, name]) => ({ id, name, agents: [] }));
  const homeless = { id: "", name: "no home proxy", agents: [] };
  homes.forEach((home, index) => (groups[home] ?? homeless).agents.push(index));
  groups.sort((one, other) => byName.compare(one.name, other.name));
  return [...groups, homeless].filter((group) => group.agents.length > 0);
}

/**
 * Arrange the groups on `width` x `height` px.
 * Result: cell (px), cols, rows, blocks with x, y, w, h in cells, cellOf (agent -> cell), agentAt (cell -> agent or -1).
 */
export function arrange(groups, agents, width, height) {
  const plan = choose(groups.map((group) => group.agents.length), width, height);
  const cols = plan.across * (plan.w + plan.gutter) - plan.gutter;
  const blocks = [];
  let y = plan.title;
  for (let first = 0; first < groups.length; first += plan.across) {
    const row = groups.slice(first, first + plan.across);
    const h = Math.max(...row.map((group) => Math.ceil(group.agents.length / plan.w)));
    row.forEach((group, column) => {
      const own = Math.ceil(group.agents.length / plan.w);
      blocks.push({ ...group, x: column * (plan.w + plan.gutter), y, w: plan.w, h: own });
    });
    y += h + plan.between;
  }
  const rows = Math.max(1, y - plan.between);
  const cellOf = new Int32Array(agents).fill(-1);
  const blockOf = new Int32Array(agents).fill(-1);
  const agentAt = new Int32Array(cols * rows).fill(-1);
  blocks.forEach((block, number) => {
    block.agents.forEach((agent, place) => {
      const cell = (block.y + Math.floor(place / block.w)) * cols + block.x + (place % block.w);
      cellOf[agent] = cell;
      blockOf[agent] = number;
      agentAt[cell] = agent;
    });
  });
  return { cell: plan.cell, cols, rows, blocks, cellOf, blockOf, agentAt };
}

/** Choose the largest cells with which all blocks fit; otherwise cells of minimum size and the lowest map. */
function choose(sizes, width, height) {
  for (let cell = CELL_MOST; cell > CELL_LEAST; cell -= 1) {
    const plan = best(sizes, width, cell, height);
    if (plan !== null && plan.high * cell <= height) return plan;
  }
  return best(sizes, width, CELL_LEAST, 0);
}

/** Choose the number of blocks per row: the best shape among those that fit, otherwise the lowest map. */
function best(sizes, width, cell, height) {
  const gutter = Math.max(1, Math.ceil(GUTTER / cell));
  const title = Math.ceil(TITLE / cell);
  const between = Math.ceil(BETWEEN / cell);
  const room = Math.floor(width / cell) + gutter;
  const least = Math.ceil(BLOCK_LEAST / cell);
  const most = Math.max(...sizes);
  let chosen = null;
  for (let across = 1; across <= sizes.length; across += 1) {
    const widest = Math.floor(room / across) - gutter;
    if (widest < least && across > 1) break;
    const w = Math.max(1, Math.min(widest, Math.max(least, Math.ceil(Math.sqrt(most * SHAPES[1])))));
    const high = heightOf(sizes, across, w, title, between);
    const fits = high * cell <= height;
    const ugly = ugliness(w / Math.ceil(most / w), across * (w + gutter) / room, sizes.length / across);
    const plan = { cell, gutter, title, between, across, w, high, fits, ugly };
    if (chosen === null || better(plan, chosen)) chosen = plan;
  }
  return chosen;
}

/** Return a penalty: zero for blocks of a good shape that fill the width in full rows. */
function ugliness(shape, filled, rows) {
  const bent = Math.max(0, Math.log(SHAPES[0] / shape), Math.log(shape / SHAPES[1]));
  return bent + (1 - filled) / 2 + (1 - rows / Math.ceil(rows)) / 2;
}

function better(plan, chosen) {
  if (plan.fits !== chosen.fits) return plan.fits;
  return plan.fits ? plan.ugly < chosen.ugly : plan.high < chosen.high;
}

function heightOf(sizes, across, w, title, between) {
  let high = title;
  for (let first = 0; first < sizes.length; first += across) {
    high += Math.ceil(Math.max(...sizes.slice(first, first + across)) / w) + between;
  }
  return high - between;
}

/** Return the nearest agent from `agent` in the direction (dx, dy), across gutters; the same agent at the edge. */
export function step(grid, agent, dx, dy) {
  let x = grid.cellOf[agent] % grid.cols;
  let y = Math.floor(grid.cellOf[agent] / grid.cols);
  for (;;) {
    x += dx;
    y += dy;
    if (x < 0 || y < 0 || x >= grid.cols || y >= grid.rows) return agent;
    const found = grid.agentAt[y * grid.cols + x];
    if (found >= 0) return found;
  }
}
