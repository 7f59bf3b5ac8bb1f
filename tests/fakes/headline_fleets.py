"""Fleets for headlines: tables whose agents have states, causes and recoveries that a test gives, or random ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fleet.monitoring.columns import RECOVERY_SHIFT
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State
from tests.fakes.reader import FakeReader
from tests.fakes.small_fleet import AUTH_1, AUTH_2, EXPIRED, NOW, OK, PROXY_1, PROXY_2, SILENT, UNHEALTHY
from tests.fleet.alerts.headlines.test_causes import table_of


class HarmedAgents(NamedTuple):
    """Agents with equal verdicts."""

    count: int
    state: State
    cause: int = NO_CAUSE
    recovery: Recovery = Recovery.UNCLEAR
    reason: Reason = Reason.NONE
    since: float = NOW - 60
    recovers_at: float = 0.0
    strands_at: float = 0.0


def table_with(
    *groups: HarmedAgents,
    healthy_count: int = 4,
    mode: ReconnectMode = ReconnectMode.RECONNECT,
    **changes_by_name: Mapping[str, Any],
) -> FleetTable:
    """Return a table of the small fleet with these agents; instances as in `small_fleet.fleet`."""
    states = [group.state for group in groups for _ in range(group.count)] + [State.HEALTHY] * healthy_count
    table = FakeReader(states, as_of=NOW).table("default", NOW)
    instances = table_of(**changes_by_name)
    row = 0
    for group in groups:
        rows = table.verdicts[row : row + group.count]
        rows["cause"], rows["since"], rows["recovers_at"] = group.cause, group.since, group.recovers_at
        rows["strands_at"] = group.strands_at
        rows["reason_and_recovery"] = group.reason | (group.recovery << RECOVERY_SHIFT)
        row += group.count
    table.heartbeats["mode"] = mode
    views = {index: replace(view, agent_count=1) for index, view in instances.instances.items()}
    return replace(table, instances=views, fleet=instances.fleet)


def random_table(seed: int) -> FleetTable:
    """Return a fleet with random failures, agents and recoveries."""
    rng = random.Random(seed)
    conditions = (OK, OK, SILENT, UNHEALTHY, EXPIRED)
    changes = {name: rng.choice(conditions) for name in ("auth_1", "auth_2", "proxy_1", "proxy_2")}
    causes = (AUTH_1, AUTH_2, PROXY_1, PROXY_2, NO_CAUSE, BACKEND_CAUSE)
    return table_with(
        *_random_groups(rng, causes),
        healthy_count=rng.randrange(9),
        mode=rng.choice(list(ReconnectMode)),
        **changes,
    )


def _random_groups(rng: random.Random, causes: Sequence[int]) -> list[HarmedAgents]:
    groups = []
    for _ in range(rng.randrange(5)):
        recovery = rng.choice(list(Recovery))
        is_automatic = recovery is Recovery.BY_ITSELF
        groups.append(
            HarmedAgents(
                rng.randrange(1, 9),
                rng.choice([State.STRANDED, State.STRANDED, State.AT_RISK, *State]),
                rng.choice(causes),
                recovery,
                rng.choice([Reason.NONE, Reason.NO_TUNNEL, Reason.POLICY_OFF]),
                NOW - rng.randrange(1, 100_000),
                NOW + rng.randrange(1, 900) if is_automatic else 0.0,
            )
        )
    return groups
