"""Facts about one instance that both its page and its API need."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.instances.records import read_state_since
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.protocol.destination.health import Health
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import SICK_STATES, InstanceKind, InstanceState


def find_state_start(cluster: str, view: InstanceView, now: float) -> float | None:
    """Return since when the instance has been in its state, as observed or as the history has it; None: not recorded.

    Of an instance that is OK: since when it is degraded or draining. Seconds since the epoch.
    """
    if view.state in SICK_STATES and view.facts.sick_since:
        return view.facts.sick_since
    if view.state is InstanceState.OK and view.health in (Health.DEGRADED, Health.UNHEALTHY):
        return view.health_since
    if view.state is InstanceState.OK and view.drain_request is not None and view.drain_request.requested_at:
        return view.drain_request.requested_at
    return read_state_since(cluster, view.facts.id, view.state.slug, now)


def find_forecast_reason(
    table: FleetTable, view: InstanceView, missing_reasons: Mapping[Capability, str]
) -> str:
    """Return why the source allows no forecast of a failure, as a sentence; empty if it does."""
    if view.facts.kind is InstanceKind.PROXY:
        return "" if table.fleet.has_tunnels else missing_reasons.get(Capability.TUNNELS_BY_AGENT, "")
    return missing_reasons.get(Capability.AGENT_TO_AUTH, "")
