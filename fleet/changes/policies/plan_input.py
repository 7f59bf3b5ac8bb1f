"""The agents and instances that a plan of policies is made over. Pure."""

from __future__ import annotations

from fleet.changes.plan_input import refuse_blind
from fleet.changes.policies.outlook import Sight, Told
from fleet.monitoring.columns import HEALTH_CHECK
from fleet.monitoring.evidence import Mode
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State


def policies_of(table: FleetTable, interval: float, now: float) -> Sight:
    """The fleet as a plan of policies needs it; `interval` is between rounds, seconds. Raises Blind."""
    refuse_blind(table)
    assert table.as_of is not None, "a table without a round is refused as blind"
    alive = (table.verdicts["state"] != State.RETIRED) & (table.heartbeats["expires_at"] > now)
    told: dict[str, dict[Told, int]] = {}
    for index, view in table.instances.items():
        rows = table.heartbeats[alive & (table.heartbeats["auth"] == index)]
        for mode in (Mode.PICK_FIRST, Mode.RECONNECT):
            for checks in (False, True):
                count = ((rows["mode"] == mode) & (((rows["flags"] & HEALTH_CHECK) != 0) == checks)).sum()
                if count:
                    told.setdefault(view.facts.id, {})[mode.slug, checks] = int(count)
    return Sight(
        agents={view.facts.id: view.agents for view in table.instances.values()},
        told=told,
        size=int((table.verdicts["state"] != State.RETIRED).sum()),
        round_interval=interval,
        as_of=table.as_of,
        age=max(now - table.as_of, 0.0),
    )
