/* Counts of the topology: agents by instance, group, state, and whether they are harmed on this side. Pure.
   Invariant: a count plus all updates after it equals a new count. */

import { BACKEND, NO_INSTANCE, STATES } from "./fleet-state.js";

const [RETIRED, STRANDED, OFFLINE] = ["retired", "stranded", "offline"].map((slug) => STATES.indexOf(slug));
/** Keys of groups and indices of instances have two bytes. */
const KEYS = 0x10000;
/** Not counted. */
const NO_CELL = -1;
/** Cells of one group and instance: one per state, harmed or not. */
const CELLS = 2 * STATES.length;

/** Whether an agent in this state has lost its tunnel. With an auth as the cause, only its resource has expired. */
function isHarmedByProxy(state, auth, cause) {
  if (state === OFFLINE) return true;
  return state === STRANDED && (cause === NO_INSTANCE || (cause !== auth && cause !== BACKEND));
}

/** Whether an agent in this state is offline, or stranded because of its auth. */
function isHarmedByAuth(state, auth, cause) {
  if (state === OFFLINE) return true;
  return state === STRANDED && cause !== NO_INSTANCE && (cause === auth || cause === BACKEND);
}

/** Numbers of agents at the instances of one kind. */
class Side {
  constructor(agents) {
    /** Pairs of a group and an instance, in the order in which they occur. */
    this.pairs = [];
    this.numberByPair = new Map();
    /** Number of agents by cell. */
    this.counts = new Int32Array(64 * CELLS);
    /** Cell of every agent. */
    this.cellOf = new Int32Array(agents).fill(NO_CELL);
  }

  cellOfPair(group, instance) {
    const pair = group * KEYS + instance;
    let pairNumber = this.numberByPair.get(pair);
    if (pairNumber === undefined) {
      pairNumber = this.pairs.push({ group, instance }) - 1;
      this.numberByPair.set(pair, pairNumber);
      if (this.pairs.length * CELLS > this.counts.length) {
        const counts = new Int32Array(2 * this.counts.length);
        counts.set(this.counts);
        this.counts = counts;
      }
    }
    return pairNumber * CELLS;
  }

  move(agent, cell) {
    const old = this.cellOf[agent];
    if (old !== NO_CELL) this.counts[old] -= 1;
    if (cell !== NO_CELL) this.counts[cell] += 1;
    this.cellOf[agent] = cell;
  }

  read(keyByNumber) {
    const cells = [];
    this.pairs.forEach(({ group, instance }, pairNumber) => {
      for (let cell = 0; cell < CELLS; cell += 1) {
        const agents = this.counts[pairNumber * CELLS + cell];
        if (agents > 0) cells.push({ instance, group: keyByNumber[group], state: cell >> 1, isHarmed: (cell & 1) === 1, agents });
      }
    });
    return cells;
  }
}

export class FlowCounts {
  constructor() {
    this.recount({ states: [] });
  }

  /** Count all agents. columns: a FleetState with columns; keys: of the groups by agent, null: one group, 0. */
  recount(columns, keys = null) {
    this.keys = keys;
    // Groups are numbered in the order in which they occur: keys may be sparse.
    this.numberByKey = new Int32Array(KEYS).fill(-1);
    this.keyByNumber = [];
    this.sides = { proxy: new Side(columns.states.length), auth: new Side(columns.states.length) };
    for (let agent = 0; agent < columns.states.length; agent += 1) this.place(columns, agent);
  }

  /** Count these agents again: their columns or their groups changed. */
  update(columns, agents) {
    for (const agent of agents) this.place(columns, agent);
  }

  place(columns, agent) {
    const { proxy, auth } = this.sides;
    const state = columns.states[agent];
    if (state === RETIRED) {
      proxy.move(agent, NO_CELL);
      auth.move(agent, NO_CELL);
      return;
    }
    const group = this.numberOf(this.keys === null ? 0 : this.keys[agent]);
    const [authIndex, cause] = [columns.auths[agent], columns.causes[agent]];
    proxy.move(agent, proxy.cellOfPair(group, columns.proxies[agent]) + 2 * state + (isHarmedByProxy(state, authIndex, cause) ? 1 : 0));
    auth.move(agent, auth.cellOfPair(group, authIndex) + 2 * state + (isHarmedByAuth(state, authIndex, cause) ? 1 : 0));
  }

  numberOf(key) {
    if (this.numberByKey[key] < 0) this.numberByKey[key] = this.keyByNumber.push(key) - 1;
    return this.numberByKey[key];
  }

  /**
   * Return [{ instance, group, state, isHarmed, agents }, ...] of the side "proxy" or "auth", in no order; `group` is a
   * key. Retired agents are not counted.
   */
  read(side) {
    return this.sides[side].read(this.keyByNumber);
  }
}
