"""Loads of instances before and after a change: tunnels of proxies, and agents connected to auths. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fleet.monitoring.views import InstanceView
from fleet.vocabulary.instances import InstanceKind


@dataclass(frozen=True, slots=True)
class InstanceLoadForecast:
    """Tunnels of a proxy, or agents connected to an auth, before and after a change."""

    name: str
    kind: InstanceKind
    before: int
    after: int
    #: Agents leave the instance, and do not come back.
    is_leaving: bool = False


def loads_to_json(loads: Iterable[InstanceLoadForecast]) -> list[dict[str, Any]]:
    """Return loads as `loads` of a plan."""
    return [{**asdict(load), "kind": load.kind.value} for load in loads]


def loads_of_plan(plan: Mapping[str, Any]) -> list[InstanceLoadForecast]:
    """Return the loads in a plan; none if the plan has no `loads`."""
    return [
        InstanceLoadForecast(**{**load, "kind": InstanceKind(load["kind"])}) for load in plan.get("loads", ())
    ]


def actual_loads_of(plan: Mapping[str, Any], views: Iterable[InstanceView]) -> dict[str, int]:
    """Return the present load of each instance in `loads` of a plan, by name; without those that are not known."""
    names = {load["name"] for load in plan.get("loads", ())}
    return {
        view.facts.name: view.agent_count
        for view in views
        if view.facts.name in names and view.state.has_current_counts
    }


def round_shares(shares: Mapping[str, float]) -> dict[str, int]:
    """Return whole numbers with the sum of the shares, rounded by the largest remainder."""
    counts = {instance: int(share) for instance, share in shares.items()}
    rest = round(sum(shares.values())) - sum(counts.values())
    for instance in sorted(shares, key=lambda instance: (counts[instance] - shares[instance], instance))[
        :rest
    ]:
        counts[instance] += 1
    return counts
