"""Where a campaign can start from: the proxies, auths and causes of a fleet, with their numbers of agents. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np

from fleet.monitoring.views import FleetTable
from fleet.vocabulary.campaigns import ConnectionKind
from fleet.vocabulary.counts import format_agent_count
from fleet.vocabulary.instances import InstanceKind, InstanceState
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.verdicts import State

#: The states whose agents a campaign may help.
_AFFECTED_STATES = (State.STRANDED, State.AT_RISK, State.DEGRADED)


@dataclass(frozen=True, slots=True)
class CampaignStart:
    """A group of agents that a campaign can move."""

    #: `Off proxy-1`, `Affected by auth-1`.
    label: str
    #: `66 agents`, `80 tunnels`.
    count_text: str
    #: Query of the form, without the question mark.
    query: str
    #: The parameters in that query.
    parameters: tuple[tuple[str, str], ...]


def find_campaign_starts(table: FleetTable) -> list[CampaignStart]:
    """Return the causes that affect agents, then the auths and the proxies with agents, in natural order."""
    views = sorted(table.instances.values(), key=lambda view: natural_sort_key(view.facts.name))
    is_affected = np.isin(table.verdicts["state"], [int(state) for state in _AFFECTED_STATES])
    affected_counts = dict(
        zip(
            *(
                numbers.tolist()
                for numbers in np.unique(table.verdicts["cause"][is_affected], return_counts=True)
            ),
            strict=True,
        )
    )
    starts = [
        _create_start(
            f"Affected by {view.facts.name}",
            format_agent_count(affected_counts[view.facts.index]),
            ("q", f"cause:{view.facts.name}"),
            ("connection", _connection_of(view.facts.kind).value),
        )
        for view in views
        if affected_counts.get(view.facts.index)
    ]
    for kind, unit in ((InstanceKind.AUTH, "agent"), (InstanceKind.PROXY, "tunnel")):
        starts += [
            _create_start(
                f"Leave {view.facts.name}",
                f"{view.agent_count:,} {unit}{'' if view.agent_count == 1 else 's'}",
                (kind.value, view.facts.name),
            )
            for view in views
            if view.facts.kind is kind and view.agent_count and view.state is not InstanceState.GONE
        ]
    return starts


def _create_start(label: str, count_text: str, *parameters: tuple[str, str]) -> CampaignStart:
    return CampaignStart(label, count_text, urlencode(parameters), parameters)


def _connection_of(kind: InstanceKind) -> ConnectionKind:
    return ConnectionKind.AUTH if kind is InstanceKind.AUTH else ConnectionKind.TUNNEL
