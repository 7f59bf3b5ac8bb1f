"""The columns of a subset, and how verdicts are put."""

from __future__ import annotations

import numpy as np

from fleet.monitoring.classify.column_rows import SubsetVerdicts
from fleet.vocabulary.verdicts import NO_CAUSE, Reason, Recovery, State


def test_decided_keeps_the_first_verdict() -> None:
    """A later rule changes nothing for those an earlier one decided; nobody decided is healthy."""
    decided = SubsetVerdicts(3)
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
    assert decided.is_undecided.tolist() == [False, False, True]
