"""The agents and instances from which a policy change is planned. Pure."""

from __future__ import annotations

from collections import Counter

from fleet.changes.plan_input import require_evidence
from fleet.changes.policies.outlook import BalancingMode, PolicySnapshot
from fleet.monitoring.columns import HEALTH_CHECK
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State


def agent_counts_by_proxies_of(table: FleetTable) -> Counter[frozenset[str]]:
    """Return the number of agents by the ids of the proxies that they have tunnels to, without retired agents."""
    ids = {index: view.facts.id for index, view in table.instances.items()}
    is_counted = (table.verdicts["state"] != State.RETIRED).tolist()
    proxies_by_agent: dict[int, set[str]] = {}
    for agent, proxy in zip(table.tunnel_agents.tolist(), table.tunnel_proxies.tolist(), strict=True):
        if proxy in ids and is_counted[agent]:
            proxies_by_agent.setdefault(agent, set()).add(ids[proxy])
    return Counter(map(frozenset, proxies_by_agent.values()))


def policy_snapshot_of(table: FleetTable, round_interval: float, now: float) -> PolicySnapshot:
    """Return the fleet data for a policy change. `round_interval`: seconds between rounds. Raises NoEvidenceError."""
    require_evidence(table)
    assert table.as_of is not None, "a table without a round is refused as blind"
    live_mask = (table.verdicts["state"] != State.RETIRED) & (table.heartbeats["expires_at"] > now)
    balancing_counts: dict[str, dict[BalancingMode, int]] = {}
    for index, view in table.instances.items():
        rows = table.heartbeats[live_mask & (table.heartbeats["auth"] == index)]
        for mode in (ReconnectMode.PICK_FIRST, ReconnectMode.RECONNECT):
            for has_health_check in (False, True):
                count = (
                    (rows["mode"] == mode) & (((rows["flags"] & HEALTH_CHECK) != 0) == has_health_check)
                ).sum()
                if count:
                    balancing_counts.setdefault(view.facts.id, {})[mode.slug, has_health_check] = int(count)
    return PolicySnapshot(
        load_counts={view.facts.id: view.agent_count for view in table.instances.values()},
        balancing_counts=balancing_counts,
        agent_count=int((table.verdicts["state"] != State.RETIRED).sum()),
        round_interval=round_interval,
        as_of=table.as_of,
        age_seconds=max(now - table.as_of, 0.0),
    )
