"""Facts about one instance that both its page and its API need."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.instances.records import read_state_since
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import SICK_STATES, InstanceKind


def find_state_start(cluster: str, view: InstanceView, now: float) -> float | None:
    """Return since when the instance has been in its state, as observed or as the history has it; None: not recorded.

    Seconds since the epoch.
    """
    if view.state in SICK_STATES and view.facts.sick_since:
        return view.facts.sick_since
    return read_state_since(cluster, view.facts.id, view.state.slug, now)


def find_forecast_reason(
    table: FleetTable, view: InstanceView, missing_reasons: Mapping[Capability, str]
) -> str:
    """Return why the source allows no forecast of a failure, as a sentence; empty if it does."""
    if view.facts.kind is InstanceKind.PROXY:
        return "" if table.fleet.has_tunnels else missing_reasons.get(Capability.TUNNELS_BY_AGENT, "")
    return missing_reasons.get(Capability.AGENT_TO_AUTH, "")
