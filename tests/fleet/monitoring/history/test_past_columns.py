from __future__ import annotations

from dataclasses import replace

import numpy as np

from fleet.monitoring.history.past_columns import COLUMN_NAMES, empty_columns


def test_new_agents_are_put_in_order() -> None:
    """The others keep their values and their tunnels."""
    columns = replace(
        empty_columns(5.0, 2),
        agents=np.array([10, 30], np.uint32),
        states=np.array([1, 3], np.uint8),
        tunnel_counts=np.array([1, 2], np.int16),
        tunnel_proxies=np.array([7, 8, 9], np.uint32),
    )
    wider = columns.with_agents(np.array([10, 20, 40], np.uint32))
    assert wider.agents.tolist() == [10, 20, 30, 40]
    assert wider.states.tolist() == [1, 0, 3, 0]
    assert wider.tunnel_counts.tolist() == [1, 0, 2, 0]
    assert wider.tunnel_proxies.tolist() == [7, 8, 9]
    assert wider.at == 5.0


def test_copy_can_be_written() -> None:
    """And does not change the original."""
    columns = replace(empty_columns(5.0, 1), agents=np.array([10], np.uint32))
    copy = columns.with_agents(np.array([10], np.uint32))
    for name in COLUMN_NAMES:
        getattr(copy, name)[:] = 1
        assert getattr(columns, name).tolist() in ([0], [10]), name
