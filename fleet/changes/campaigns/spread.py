"""Which agents a campaign moves so that the loads of proxies or auths become even.

An agent chooses at random between the instances that it can move to, so some of those that leave one full instance
arrive at another: moving only the agents above the mean would leave the loads uneven, and moving all agents makes the
others too small.
docs/reference/campaigns.md, "Forecast".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleet.changes.campaigns.forecast import require_current_record
from fleet.changes.campaigns.move_strategies import CampaignSnapshot, create_move_strategy
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.campaigns import ConnectionKind

#: Most steps of the search: in a large fleet, each step moves several agents of one class.
_MAX_STEPS = 2000


def select_agents_to_spread(table: FleetTable, connection: ConnectionKind) -> npt.NDArray[np.intp]:
    """Return the rows of the agents to move, as few as make the expected loads even; none if no agent helps.

    Raises NoEvidenceError without current data.
    """
    require_current_record(table)
    snapshot, strategy = CampaignSnapshot(table), create_move_strategy(connection, ())
    instances = snapshot.auths if connection is ConnectionKind.AUTH else snapshot.proxies
    usable_ids = sorted(instance for instance, state in instances.items() if state.is_usable)
    load_by_id = {view.facts.id: view.agent_count for view in table.instances.values()}
    # Agents that leave the same instance and can move to the same ones are one class.
    rows_by_class: dict[tuple[str, frozenset[str]], list[int]] = {}
    for row, agent_id in enumerate(table.ids):
        agent = snapshot.find_agent(agent_id)
        if agent is None or strategy.find_skip_reason(agent, snapshot):
            continue
        instance_to_leave = strategy.choose_instance_to_leave(agent, snapshot, agent_id)
        if instance_to_leave not in usable_ids:
            continue
        connected_ids = {instance_to_leave} if connection is ConnectionKind.AUTH else agent.proxies
        if destinations := frozenset(usable_ids) - connected_ids:
            rows_by_class.setdefault((instance_to_leave, destinations), []).append(row)
    shifts = np.array(
        [
            [
                (instance in destinations) / len(destinations) - (instance == source_id)
                for instance in usable_ids
            ]
            for source_id, destinations in rows_by_class
        ]
    )
    counts = _choose_counts(
        np.array([load_by_id[instance] for instance in usable_ids], np.float64),
        shifts,
        np.array([len(rows) for rows in rows_by_class.values()], np.int64),
    )
    selected_rows = [
        row
        for rows, count in zip(rows_by_class.values(), counts.tolist(), strict=True)
        for row in rows[:count]
    ]
    return np.array(sorted(selected_rows), np.intp)


def _choose_counts(
    loads: npt.NDArray[np.float64], shifts: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return how many agents of each class move, so that the sum of the squared loads becomes small.

    `shifts`: by class, the expected difference of each load when one of its agents moves. Each step moves agents of the
    class that helps most.
    """
    counts = np.zeros(len(sizes), np.int64)
    if not len(sizes):
        return counts
    step = max(1, int(sizes.sum()) // _MAX_STEPS)
    squares = (shifts**2).sum(axis=1)
    for _ in range(_MAX_STEPS):
        sizes_of_step = np.minimum(step, sizes - counts)
        gains = -(2 * (shifts @ loads) * sizes_of_step + squares * sizes_of_step**2)
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            break
        counts[best] += sizes_of_step[best]
        loads = loads + shifts[best] * sizes_of_step[best]
    return counts
