/* Where every agent stands on the map. Pure: numbers in, numbers out.
   A block per home proxy; within it agents stand in the order of their index, which never changes, so that
   a change of colour is a change of state and nothing else. */

/** Cells are this large at most and at least, in px; below the least the map grows taller than the window. */
const CELL_MOST = 28;
const CELL_LEAST = 4;
/** Room, in px, that becomes whole cells: between blocks, above the first row of them, and above the others. */
const GUTTER = 14;
const TITLE = 20;
const BETWEEN = 28;
/** A block narrower than this has no room for its title. */
const BLOCK_LEAST = 96;
/** Blocks at least and at most this much wider than high are easy to compare. */
const SHAPES = [1.1, 5];

const byName = new Intl.Collator("en", { numeric: true });

/**
 * Group agents by home: [{id, name, agents: [index, ...]}, ...].
 * By name as people count, so that proxy-2 is found before proxy-10; those without a home come last.
 */
export function groupByHome(homes, blocks) {
  const groups = blocks.map(([id, name]) => ({ id, name, agents: [] }));
  const homeless = { id: "", name: "no proxy yet", agents: [] };
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

/** The largest cells with which everything fits; else the least cells, as flat as can be. */
function choose(sizes, width, height) {
  for (let cell = CELL_MOST; cell > CELL_LEAST; cell -= 1) {
    const plan = best(sizes, width, cell, height);
    if (plan !== null && plan.high * cell <= height) return plan;
  }
  return best(sizes, width, CELL_LEAST, 0);
}

/** Of all numbers of blocks side by side, the fitting one with the best shape, else the flattest. */
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

/** Zero for blocks of a good shape that fill the width in full rows. */
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

/** The nearest agent from `agent` in a direction (dx, dy), over gutters; the same agent at the edge. */
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
