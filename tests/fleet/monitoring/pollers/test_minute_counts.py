from __future__ import annotations

import numpy as np

from fleet.monitoring.columns import NO_INSTANCE, VERDICT, blank_places
from fleet.monitoring.pollers.minute_counts import count_groups, is_new_minute
from fleet.monitoring.state.outbox import GroupKind
from fleet.vocabulary.verdicts import BACKEND_CAUSE, State


def test_first_round_of_a_minute_counts() -> None:
    """Also after minutes without a round, and when there was none before."""
    assert not is_new_minute(120.0, 179.9)
    assert is_new_minute(179.9, 180.0)
    assert is_new_minute(120.0, 999.0)
    assert is_new_minute(0.0, 999.0)


def test_agents_are_counted_by_proxy_auth_and_cause() -> None:
    """With each state; those without an instance count too, and the backend is a cause."""
    verdicts, places = np.zeros(4, VERDICT), blank_places(4)
    verdicts["state"] = [State.STRANDED, State.HEALTHY, State.HEALTHY, State.STRANDED]
    verdicts["cause"] = [BACKEND_CAUSE, NO_INSTANCE, NO_INSTANCE, 5]
    places["proxy"] = [5, 5, 5, NO_INSTANCE]
    places["auth"] = [0, 0, 1, 1]
    assert sorted(count_groups(verdicts, places).tolist()) == [
        (GroupKind.PROXY, State.STRANDED, 5, 1),
        (GroupKind.PROXY, State.STRANDED, NO_INSTANCE, 1),
        (GroupKind.PROXY, State.HEALTHY, 5, 2),
        (GroupKind.AUTH, State.STRANDED, 0, 1),
        (GroupKind.AUTH, State.STRANDED, 1, 1),
        (GroupKind.AUTH, State.HEALTHY, 0, 1),
        (GroupKind.AUTH, State.HEALTHY, 1, 1),
        (GroupKind.CAUSE, State.STRANDED, 5, 1),
        (GroupKind.CAUSE, State.STRANDED, BACKEND_CAUSE, 1),
        (GroupKind.CAUSE, State.HEALTHY, NO_INSTANCE, 2),
    ]


def test_fleet_without_agents_has_no_counts() -> None:
    """And no error."""
    assert len(count_groups(np.zeros(0, VERDICT), blank_places(0))) == 0
