"""Auths and proxies as the map shows them: name, state in words, and load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards.shared.instance_loads import InstanceLoad, instance_loads_of
from dashboards.shared.instance_states import find_stranding_instances, shown_state_of
from dashboards.shared.presenters import format_generation
from fleet.monitoring.state.tables import sort_instances
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import CUT_OFF_STATES, SICK_STATES
from fleet.vocabulary.verdicts import BACKEND_CAUSE


def instances_as_json(table: FleetTable) -> list[dict[str, Any]]:
    """Return every instance of a table, auths first, in natural order of their names."""
    views = sort_instances(table.instances.values())
    loads = instance_loads_of(views)
    indices_by_id = {view.facts.id: view.facts.index for view in views}
    # Ids of causes: instances, and the auth backend of the cluster.
    indices_by_id[f"backend/{table.cluster}"] = BACKEND_CAUSE
    stranding = find_stranding_instances(table)
    return [
        _instance_as_json(
            view, loads[view.facts.index], indices_by_id, is_stranding=view.facts.index in stranding
        )
        for view in views
    ]


def _instance_as_json(
    view: InstanceView, load: InstanceLoad, indices_by_id: Mapping[str, int], *, is_stranding: bool
) -> dict[str, Any]:
    facts, shown_state = view.facts, shown_state_of(view, is_stranding=is_stranding)
    return {
        # As in the live columns.
        "index": facts.index,
        "id": facts.id,
        "name": facts.name,
        "kind": facts.kind,
        "state": view.state.slug,
        # Its connections fail: they survive while it responds, and are lost when it forwards no traffic.
        "failing": view.state in SICK_STATES,
        "cut_off": view.state in CUT_OFF_STATES,
        "stranding": is_stranding,
        # The state in words, its symbol without `shape-`, and its CSS class.
        "label": shown_state.label,
        "symbol": shown_state.symbol,
        "class": shown_state.css_class,
        "sentence": view.sentence or view.health_sentence,
        # The instance reports its load itself: without an answer, the number is the last one known.
        "current": view.state.has_current_counts,
        # Live tunnels of a proxy; connected agents of an auth.
        "load": load.count,
        # Difference to the mean of its peers as a share of it, or null.
        "imbalance": load.imbalance,
        "draining": view.drain_request is not None,
        "region": facts.region,
        "version": facts.version,
        "generation": format_generation(facts),
        # Of a proxy: the auth that receives its heartbeats.
        "auth": indices_by_id.get(facts.heartbeat_auth),
        # What makes a failing instance fail, when that is not the instance itself.
        "cause": indices_by_id.get(view.cause),
    }
