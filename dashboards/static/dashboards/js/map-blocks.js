/* Agents in blocks: which block and which slot an agent is in, and the number of agents by state. Pure.
   A slot belongs to one agent: who leaves a block leaves an empty slot, and takes it again after coming back; who joins
   a block gets a new slot at its end. So a cell that changes is always an agent that changes. */

const EMPTY = -1;

class Block {
  constructor(key, stateCount) {
    this.key = key;
    /** Agent by slot; EMPTY where the agent left. */
    this.slots = [];
    this.size = 0;
    this.counts = new Int32Array(stateCount);
    /** Slots of agents that left, by agent. */
    this.left = new Map();
  }

  add(agent) {
    this.size += 1;
    const slot = this.left.size === 0 ? undefined : this.left.get(agent);
    if (slot === undefined) return this.slots.push(agent) - 1;
    this.left.delete(agent);
    this.slots[slot] = agent;
    return slot;
  }

  remove(agent, slot) {
    this.slots[slot] = EMPTY;
    this.left.set(agent, slot);
    this.size -= 1;
  }
}

export class Blocks {
  constructor(stateCount) {
    this.stateCount = stateCount;
    this.clear();
  }

  clear() {
    this.byKey = new Map();
    /** Columns as of the last `sync`: key of the block, slot in it, and state. */
    this.keys = new Uint16Array(0);
    this.slots = new Int32Array(0);
    this.states = new Uint8Array(0);
  }

  /** Return the block of a key; a new one is empty. */
  block(key) {
    let block = this.byKey.get(key);
    if (block === undefined) {
      block = new Block(key, this.stateCount);
      this.byKey.set(key, block);
    }
    return block;
  }

  /**
   * Move every agent to the block that `keys` names, and count `states`. keys, states: columns of the same length.
   * Return the agents that moved, [{ agent, key, slot }], with the block and slot that they left; new agents do not count.
   */
  sync(keys, states) {
    if (keys.length < this.keys.length) this.clear();
    const known = this.keys.length;
    const moved = [];
    if (keys.length > known) this.grow(keys, states);
    const { keys: knownKeys, states: knownStates, slots } = this;
    // All agents on every call: 1 ms for 100,000, and no change can be missed.
    for (let agent = 0; agent < known; agent += 1) {
      const key = knownKeys[agent];
      const state = knownStates[agent];
      if (key === keys[agent] && state === states[agent]) continue;
      const from = this.block(key);
      from.counts[state] -= 1;
      knownStates[agent] = states[agent];
      let to = from;
      if (key !== keys[agent]) {
        moved.push({ agent, key, slot: slots[agent] });
        from.remove(agent, slots[agent]);
        to = this.block(keys[agent]);
        knownKeys[agent] = keys[agent];
        slots[agent] = to.add(agent);
      }
      to.counts[states[agent]] += 1;
    }
    return moved;
  }

  /** Add the agents past the end, in the order of their index. */
  grow(keys, states) {
    const known = this.keys.length;
    const slots = new Int32Array(keys.length);
    slots.set(this.slots);
    this.slots = slots;
    const [grownKeys, grownStates] = [keys.slice(), states.slice()];
    grownKeys.set(this.keys);
    grownStates.set(this.states);
    [this.keys, this.states] = [grownKeys, grownStates];
    for (let agent = known; agent < keys.length; agent += 1) {
      const block = this.block(keys[agent]);
      slots[agent] = block.add(agent);
      block.counts[states[agent]] += 1;
    }
  }

  /** Return the share of slots that are empty. */
  get emptyShare() {
    let [slots, agents] = [0, 0];
    for (const block of this.byKey.values()) {
      slots += block.slots.length;
      agents += block.size;
    }
    return slots === 0 ? 0 : 1 - agents / slots;
  }

  /** Remove empty slots: agents are in the order of their index again. */
  compact() {
    const [keys, states] = [this.keys, this.states];
    this.clear();
    this.sync(keys, states);
  }
}

/** Return the agents of the cells from `first` on, `perCell` each, without empty slots. */
export function agentsOf(block, cell, perCell) {
  return block.slots.slice(cell * perCell, (cell + 1) * perCell).filter((agent) => agent !== EMPTY);
}
