/* The topology on the map page: its filters are those of the map, and it groups agents as the map does where that says
   more than its own columns. */

import { STATES } from "./fleet-state.js";
import { LOCAL_GROUPINGS, groupAgents } from "./map-groupings.js";
import { Topology } from "./map-topology.js";

/** With these groupings of the map, the groups of the topology are states: its nodes and edges show the rest. */
const BY_STATE = new Set(["proxy", "auth", "cause", "state", "home"]);

export class MapFlow {
  /**
   * data: MapData; scene: Scene. isPaused: whether updates are paused; requestPaint: requests `paint`; showStates: shows only agents in the states with
   * these slugs, or all; showBlock: selects the agents of a block by its key; hideBlock: clears this selection.
   */
  constructor(element, { data, scene, isPaused, requestPaint, showStates, showBlock, hideBlock }) {
    Object.assign(this, { data, scene, showStates, showBlock, hideBlock });
    this.topology = new Topology(element, data, { isPaused, requestPaint });
    element.addEventListener("topology-filter", ({ detail }) => this.apply(detail));
  }

  /** Show on the map what a node or edge selects. */
  apply({ proxy = null, auth = null, state, group }) {
    this.showStates(state === undefined ? [] : [STATES[state]]);
    const { place } = this.data;
    // The same place again would show all agents.
    if (proxy !== place.proxy || auth !== place.auth) this.data.show({ proxy, auth });
    if (group !== undefined) this.showBlock(group);
    else if (this.group !== undefined) this.hideBlock();
    this.group = group;
  }

  /** Show in the topology what the map shows. slugs: of the states that it shows; empty: all. */
  follow(slugs) {
    const { proxy, auth } = this.data.place;
    const states = [...slugs];
    this.topology.setFilter({
      proxy: proxy ?? undefined,
      auth: auth ?? undefined,
      state: states.length === 1 ? STATES.indexOf(states[0]) : undefined,
      group: this.group,
    });
  }

  /** Group the agents as the map does. label: noun of the groups. */
  setGroup(label) {
    this.group = undefined;
    this.topology.setGroups(BY_STATE.has(this.scene.group) ? null : () => this.findGroups(label));
  }

  /** Return the groups of the map; null while they are being requested. */
  findGroups(label) {
    const { group, remote, state } = this.scene;
    if (remote === null && !LOCAL_GROUPINGS.includes(group)) return null;
    return { ...groupAgents(group, { state, instances: this.data.instances, remote }), label };
  }

  /** Paint what is known now. */
  paint() {
    this.topology.paint();
  }
}
