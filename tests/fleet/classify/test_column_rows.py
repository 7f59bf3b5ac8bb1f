"""The columns of a subset, and how verdicts are put."""

from __future__ import annotations

import numpy as np
import pytest

from fleet.classify.column_rows import Decided, Rows
from fleet.domain.verdicts import NO_CAUSE, Reason, Recovery, State


@pytest.mark.parametrize(
    ("desired", "tracked", "there_are", "wanted"),
    [
        (0, 0, 7, 7),
        (0, 0, 300, 300),
        (2, 0, 7, 2),
        (0, 3, 7, 3),
        (5, 3, 7, 3),
        (255, 255, 300, 255),
        (2, 2, 0, 0),
    ],
)
def test_capped_takes_zero_for_no_cap(desired: int, tracked: int, there_are: int, wanted: int) -> None:
    """The least of what it wants, what it knows and what there is; zero says nothing."""
    capped = Rows.capped(np.array([desired], np.uint8), np.array([tracked], np.uint8), there_are)
    assert capped.tolist() == [wanted]


def test_decided_keeps_the_first_verdict() -> None:
    """A later rule changes nothing for those an earlier one decided; nobody decided is healthy."""
    decided = Decided(3)
    first = decided.put(np.array([True, False, False]), State.STRANDED, Reason.NO_TUNNEL)
    second = decided.put(
        np.array([True, True, False]),
        State.AT_RISK,
        Reason.AUTH_UNHEALTHY,
        np.array([7, 8, 9], np.uint16),
        (Recovery.BY_ITSELF, np.array([1.0, 2.0, 3.0])),
    )
    assert first.tolist() == [True, False, False]
    assert second.tolist() == [False, True, False]
    assert decided.state.tolist() == [State.STRANDED, State.AT_RISK, State.HEALTHY]
    assert decided.cause.tolist() == [NO_CAUSE, 8, NO_CAUSE]
    assert decided.recovers_at.tolist() == [0.0, 2.0, 0.0]
    assert decided.todo.tolist() == [False, False, True]
