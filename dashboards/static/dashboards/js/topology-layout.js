/* Places of the nodes and edges of the topology. Pure: numbers in, numbers out, all in px. */

import { MAX_NAMED } from "./topology-flow.js";

/** Minimum height of a node: one line of text, and a target that a finger can hit. */
const NODE_LEAST = 30;
/** Minimum height of a node that fails or that a change acts on, where all nodes fit: its state has a line of its own. */
const NEWS_LEAST = 46;
const GAP = 8;
/** Height that a full column has left, to show which of its nodes have more agents. */
const SPARE = 24;
/** Height of a node at which a column with few nodes has enough space. */
const NODE_COMFORTABLE = 52;
/** Limits of the height of the whole. The height follows from the number of instances: the map below keeps its place. */
const HEIGHT = [6 * (NODE_LEAST + GAP) - GAP, MAX_NAMED * (NODE_LEAST + GAP) - GAP + SPARE];
/** Width of the nodes of a column, as a share of the whole, and its limits. */
const NODE_SHARE = { proxy: 0.2, group: 0.16, auth: 0.2 };
const NODE_WIDTH = [132, 250];
/** Minimum width of an edge: a single agent is visible. */
const EDGE_LEAST = 2.5;
/** Where an edge has its symbol, as a share of its length from the instance; and the distance to that of the next edge
    of the same instance. */
const [MARK_AT, MARK_STEP] = [0.34, 0.2];
/** Number of straight pieces by which the length of a curve is measured. */
const PIECES = 24;

const clamp = (value, [least, most]) => Math.min(most, Math.max(least, value));

/** Minimum width of the whole; in less space, it scrolls. */
export const WIDTH_LEAST = 530;

/** Return { width, height, nodes, edges }: boxes by key { x, y, w, h }, and curves by key { d, thickness, x, y }. */
export function arrangeFlow({ columns, edges }, availableWidth) {
  const width = Math.max(WIDTH_LEAST, availableWidth);
  const most = Math.max(...Object.values(columns).map((nodes) => nodes.length));
  const instances = Math.max(...[columns.proxy, columns.auth].map((column) => (column.some(({ isFold }) => isFold) ? MAX_NAMED : column.length)));
  const height = Math.max(clamp(instances * (NODE_COMFORTABLE + GAP) - GAP, HEIGHT), most * (NODE_LEAST + GAP) - GAP + SPARE);
  const nodes = new Map();
  const widths = Object.fromEntries(Object.entries(NODE_SHARE).map(([name, share]) => [name, clamp(share * width, NODE_WIDTH)]));
  const left = { proxy: 0, group: (width - widths.group) / 2, auth: width - widths.auth };
  // Edges are as wide as the groups are high; where they do not fit the instance, connect() makes them narrower.
  let scale = 0;
  for (const [name, column] of Object.entries(columns)) {
    const own = stack(column, nodes, { x: left[name], w: widths[name], height });
    if (name === "group") scale = own;
  }
  return { width, height, nodes, edges: connect(edges, nodes, scale) };
}

/** Whether a node is an instance that fails or that a change acts on. */
function hasNews({ isFailing, hasWork, isFold }) {
  return !isFold && Boolean(isFailing || hasWork);
}

/** Place the nodes of one column below each other, as high as their number of agents. Return px per agent. */
function stack(column, nodes, { x, w, height }) {
  const room = height - (column.length - 1) * GAP;
  const newsCount = column.filter(hasNews).length;
  const newsLeast = newsCount * NEWS_LEAST + (column.length - newsCount) * NODE_LEAST <= room ? NEWS_LEAST : NODE_LEAST;
  const leastOf = (node) => (hasNews(node) ? newsLeast : NODE_LEAST);
  const free = room - column.reduce((sum, node) => sum + leastOf(node), 0);
  // Without agents, all are equally high. A fold that only closes stays small.
  const weigh = ({ agents, isFold }, agentsInAll) => (agentsInAll > 0 ? agents : isFold ? 0 : 1);
  const agentsInAll = column.reduce((sum, { agents }) => sum + agents, 0);
  const all = column.reduce((sum, node) => sum + weigh(node, agentsInAll), 0);
  let y = 0;
  for (const node of column) {
    const h = leastOf(node) + (all > 0 ? (free * weigh(node, agentsInAll)) / all : 0);
    nodes.set(node.key, { x, y, w, h });
    y += h + GAP;
  }
  return agentsInAll > 0 ? free / agentsInAll : 0;
}

/** Draw every edge from the side of one node to the side of the other, stacked in the order of the other ends. */
function connect(edges, nodes, scale) {
  const ports = new Map();
  const middle = (key) => nodes.get(key).y + nodes.get(key).h / 2;
  const thickness = new Map(edges.map((edge) => [edge.key, Math.max(EDGE_LEAST, edge.agents * scale)]));
  for (const side of ["proxy", "auth"]) {
    const ofSide = edges.filter((edge) => edge.side === side);
    for (const [end, otherEnd] of [["from", "to"], ["to", "from"]]) {
      for (const key of new Set(ofSide.map((edge) => edge[end]))) {
        const own = ofSide.filter((edge) => edge[end] === key).sort((one, other) => middle(one[otherEnd]) - middle(other[otherEnd]) || (one.key < other.key ? -1 : 1));
        const box = nodes.get(key);
        const sum = own.reduce((total, edge) => total + thickness.get(edge.key), 0);
        const room = Math.max(0, box.h - 6);
        const shrink = Math.min(1, room / sum);
        let y = box.y + (box.h - sum * shrink) / 2;
        for (const edge of own) {
          const share = thickness.get(edge.key) * shrink;
          ports.set(`${edge.key} ${end}`, { y: y + share / 2, share });
          y += share;
        }
      }
    }
  }
  const marksOf = new Map();
  return new Map(edges.map((edge) => {
    const [instance, group] = [nodes.get(edge.from), nodes.get(edge.to)];
    const [start, stop] = [ports.get(`${edge.key} from`), ports.get(`${edge.key} to`)];
    const [x0, x1] = edge.side === "proxy" ? [instance.x + instance.w, group.x] : [instance.x, group.x + group.w];
    const marks = marksOf.get(edge.from) ?? 0;
    if (edge.failing > 0) marksOf.set(edge.from, marks + 1);
    const at = edge.failing > 0 ? MARK_AT + MARK_STEP * (marks % 3) : 0.12;
    return [edge.key, curve(x0, start.y, x1, stop.y, Math.max(1.5, Math.min(start.share, stop.share)), at)];
  }));
}

/** Return a curve from the instance to the group, and the place of its mark: `along` is the distance on the curve. */
function curve(x0, y0, x1, y1, thickness, at) {
  const round = (value) => Math.round(value * 10) / 10;
  const bend = (x0 + x1) / 2;
  const point = (t) => {
    const [a, b, c, d] = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t ** 2 * (1 - t), t ** 3];
    return [a * x0 + (b + c) * bend + d * x1, (a + b) * y0 + (c + d) * y1];
  };
  const points = Array.from({ length: PIECES + 1 }, (_, piece) => point(piece / PIECES));
  const lengths = points.slice(1).map(([x, y], piece) => Math.hypot(x - points[piece][0], y - points[piece][1]));
  const length = lengths.reduce((sum, piece) => sum + piece, 0);
  let [piece, passed] = [0, 0];
  while (piece < PIECES - 1 && passed + lengths[piece] < at * length) {
    passed += lengths[piece];
    piece += 1;
  }
  const [x, y] = point((piece + (at * length - passed) / lengths[piece]) / PIECES);
  return {
    d: `M${round(x0)} ${round(y0)}C${round(bend)} ${round(y0)} ${round(bend)} ${round(y1)} ${round(x1)} ${round(y1)}`,
    thickness: round(thickness),
    x: round(x),
    y: round(y),
    along: round(at * length),
    length: round(length),
  };
}
