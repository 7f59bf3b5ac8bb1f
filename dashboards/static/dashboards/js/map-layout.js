/* Where every cell is: blocks in rows, cells in blocks. Pure: numbers in, numbers out; all in CSS pixels.
   The largest cells are chosen with which all blocks fit the screen. If even the smallest do not fit, a cell stands for
   several agents; `zoom` then leads to larger cells, and the map is higher than the screen. */

/** Cells with a name, width and height; then squares; then squares that stand for several agents. The largest first. */
const NAMED = [[220, 76], [180, 60], [150, 48], [132, 40], [118, 34], [104, 30], [96, 26], [88, 24], [80, 22], [72, 20]];
const SQUARES = [36, 32, 28, 24, 22, 20, 18, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3];
const AGGREGATE = 8;
const AGENTS_PER_CELL = [8, 16, 32, 64, 128, 256, 512, 1024, 4096];
export const CANDIDATES = [
  ...NAMED.map(([w, h]) => ({ w, h, perCell: 1, named: true })),
  ...SQUARES.map((size) => ({ w: size, h: size, perCell: 1, named: false })),
  ...AGENTS_PER_CELL.map((perCell) => ({ w: AGGREGATE, h: AGGREGATE, perCell, named: false })),
];
/** Maximum height of a cell that is stretched to fill the screen. */
const NAMED_HEIGHT_MOST = 110;
/** Headers of blocks, the richest first: height, minimum width of the block, and minimum width of its cells. */
const HEADERS = [
  { name: "full", height: 40, width: 176, cell: 6, pad: 5 },
  { name: "line", height: 18, width: 84, cell: 3, pad: 2 },
  { name: "none", height: 0, width: 12, cell: 3, pad: 1 },
];
/** Space between blocks. */
const GAP = { full: 10, line: 4, none: 2 };
/** Minimum and maximum ratio of width to height of a block. */
const SHAPES = [1, 4.5];

/**
 * Arrange blocks with these numbers of slots on `width` x `height`.
 * Result: candidate (its number), zoom (which may be less than asked), cell { w, h, gap }, perCell, named, header,
 * headerHeight, width, height, and blocks [{ x, y, w, h, cols, cells, left, top }]; left and top: of the first cell.
 */
export function arrange(sizes, width, height, zoom = 0) {
  const fit = chooseFit(sizes, width, height);
  const number = Math.max(0, fit.number - zoom);
  const plan = zoom === 0 ? fit : { number, ...(planOf(sizes, number, HEADERS[0], width, 0) ?? planOf(sizes, number, HEADERS[1], width, 0) ?? fit) };
  return place(sizes, plan, width, height, fit.number - plan.number);
}

/** Return the plan with the largest cells that fits; otherwise the lowest one. */
function chooseFit(sizes, width, height) {
  for (const header of HEADERS) {
    for (let number = 0; number < CANDIDATES.length; number += 1) {
      const { w, perCell } = CANDIDATES[number];
      if (w < header.cell || (header.name === "full" && perCell > 1)) continue;
      const plan = planOf(sizes, number, header, width, height);
      if (plan !== null && plan.high <= height) return { number, ...plan };
    }
  }
  const last = CANDIDATES.length - 1;
  return { number: last, ...planOf(sizes, last, HEADERS[1], Math.max(width, HEADERS[1].width), 0) };
}

/** Return the best number of blocks per row for a candidate, or null if a block is too narrow for its header. */
function planOf(sizes, number, header, width, height) {
  const { w, h, perCell } = CANDIDATES[number];
  const gap = GAP[header.name];
  const cells = sizes.map((size) => Math.max(1, Math.ceil(size / perCell)));
  if (height > 0 && cells.reduce((sum, count) => sum + count, 0) * w * h > width * height) return null;
  const most = Math.max(1, ...cells);
  let chosen = null;
  for (let across = 1; across <= Math.max(1, sizes.length); across += 1) {
    const blockWidth = Math.floor((width + gap) / across) - gap;
    if (blockWidth < header.width && across > 1) break;
    const cols = Math.max(1, Math.floor((blockWidth - 2 * header.pad) / w));
    let high = -gap;
    for (let first = 0; first < cells.length; first += across) {
      high += header.height + 2 * header.pad + Math.ceil(Math.max(...cells.slice(first, first + across)) / cols) * h + gap;
    }
    const rows = cells.length / across;
    const shape = blockWidth / (header.height + Math.ceil(most / cols) * h);
    const bent = Math.max(0, Math.log(SHAPES[0] / shape), Math.log(shape / SHAPES[1]));
    const plan = { header, across, blockWidth, cols, high, fits: high <= height, ugly: bent + (1 - rows / Math.ceil(rows || 1)) };
    if (chosen === null || isBetter(plan, chosen)) chosen = plan;
  }
  return chosen;
}

function isBetter(plan, chosen) {
  if (plan.fits !== chosen.fits) return plan.fits;
  return plan.fits ? plan.ugly < chosen.ugly : plan.high < chosen.high;
}

function place(sizes, plan, width, height, zoom) {
  const { header, across, blockWidth, cols } = plan;
  const { perCell, named, ...size } = CANDIDATES[plan.number];
  const gap = GAP[header.name];
  const inner = blockWidth - 2 * header.pad;
  const cells = sizes.map((count) => Math.ceil(count / perCell));
  const rowsOf = (first) => Math.max(1, Math.ceil(Math.max(0, ...cells.slice(first, first + across)) / cols));
  let [w, h] = [size.w, size.h];
  if (named) {
    let rows = 0;
    for (let first = 0; first < sizes.length; first += across) rows += rowsOf(first);
    w = Math.floor(inner / cols);
    if (rows > 0 && height > plan.high) h = Math.min(NAMED_HEIGHT_MOST, h + Math.floor((height - plan.high) / rows));
  }
  const blocks = [];
  let y = 0;
  for (let first = 0; first < sizes.length; first += across) {
    const blockHeight = header.height + 2 * header.pad + rowsOf(first) * h;
    for (let number = first; number < Math.min(first + across, sizes.length); number += 1) {
      const x = (number - first) * (blockWidth + gap);
      blocks.push({ x, y, w: blockWidth, h: blockHeight, cols, cells: cells[number], left: x + header.pad, top: y + header.height + header.pad });
    }
    y += blockHeight + gap;
  }
  return {
    candidate: plan.number, zoom, cell: { w, h, gap: w >= 5 ? 1 : 0 }, perCell, named,
    header: header.name, headerHeight: header.height, width, height: Math.max(0, y - gap), blocks,
  };
}

/** Return the rectangle of a cell. */
export function rectOf(layout, number, cell) {
  const block = layout.blocks[number];
  const { w, h } = layout.cell;
  return { x: block.left + (cell % block.cols) * w, y: block.top + Math.floor(cell / block.cols) * h, w, h };
}

/** Return { number, cell } at a point: a block, and a cell of it or -1; null outside of all blocks. */
export function cellAt(layout, x, y) {
  const number = layout.blocks.findIndex((block) => x >= block.x && x < block.x + block.w && y >= block.y && y < block.y + block.h);
  if (number < 0) return null;
  const block = layout.blocks[number];
  const [column, row] = [Math.floor((x - block.left) / layout.cell.w), Math.floor((y - block.top) / layout.cell.h)];
  const cell = row * block.cols + column;
  const inside = column >= 0 && column < block.cols && row >= 0 && cell < block.cells;
  return { number, cell: inside ? cell : -1 };
}

/** Return all { number, cell } that touch a rectangle. */
export function cellsIn(layout, { x, y, w, h }) {
  const found = [];
  layout.blocks.forEach((block, number) => {
    if (block.x > x + w || block.x + block.w < x || block.y > y + h || block.y + block.h < y) return;
    const clamp = (value, most) => Math.min(Math.max(value, 0), most);
    const [first, last] = [clamp(Math.floor((x - block.left) / layout.cell.w), block.cols), clamp(Math.floor((x + w - block.left) / layout.cell.w), block.cols - 1)];
    const rows = Math.ceil(block.cells / block.cols);
    const [top, bottom] = [clamp(Math.floor((y - block.top) / layout.cell.h), rows), clamp(Math.floor((y + h - block.top) / layout.cell.h), rows - 1)];
    // A rectangle that only touches the header selects nothing.
    if (x + w < block.left || y + h < block.top) return;
    for (let row = top; row <= bottom; row += 1) {
      for (let column = first; column <= last; column += 1) {
        const cell = row * block.cols + column;
        if (cell < block.cells) found.push({ number, cell });
      }
    }
  });
  return found;
}

/**
 * Return the next { number, cell } in the direction (dx, dy), also in the next block; null at the edge of the map.
 * isEmpty(number, cell): cells that are skipped.
 */
export function step(layout, { number, cell }, dx, dy, isEmpty = () => false) {
  const block = layout.blocks[number];
  let [column, row] = [cell % block.cols, Math.floor(cell / block.cols)];
  for (;;) {
    [column, row] = [column + dx, row + dy];
    const next = row * block.cols + column;
    if (column < 0 || column >= block.cols || row < 0 || next >= block.cells) break;
    if (!isEmpty(number, next)) return { number, cell: next };
  }
  return stepToBlock(layout, number, rectOf(layout, number, cell), dx, dy, isEmpty);
}

/** Return the cell nearest to `rect` in the nearest block in a direction that has a cell. */
function stepToBlock(layout, from, rect, dx, dy, isEmpty) {
  const [x, y] = [rect.x + rect.w / 2, rect.y + rect.h / 2];
  const start = layout.blocks[from];
  const ahead = layout.blocks
    .map((block, number) => ({ block, number, far: distance(start, block, dx, dy), aside: dx === 0 ? offset(x, block.x, block.w) : offset(y, block.y, block.h) }))
    .filter(({ far, aside }) => far > 0 && (dx === 0 || aside === 0))
    .sort((one, other) => one.far - other.far || one.aside - other.aside);
  for (const { block, number } of ahead) {
    let [nearest, least] = [-1, Infinity];
    for (let cell = 0; cell < block.cells; cell += 1) {
      const other = rectOf(layout, number, cell);
      const far = (other.x + other.w / 2 - x) ** 2 + (other.y + other.h / 2 - y) ** 2;
      if (far < least && !isEmpty(number, cell)) [nearest, least] = [cell, far];
    }
    if (nearest >= 0) return { number, cell: nearest };
  }
  return null;
}

function distance(from, to, dx, dy) {
  return dx > 0 ? to.x - from.x : dx < 0 ? from.x - to.x : dy > 0 ? to.y - from.y : from.y - to.y;
}

function offset(at, start, length) {
  return at < start ? start - at : at > start + length ? at - start - length : 0;
}
