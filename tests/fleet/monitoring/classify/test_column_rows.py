"""The columns of a subset, and how verdicts are put."""

from __future__ import annotations

import numpy as np

from fleet.monitoring.classify.column_rows import SubsetVerdicts
from fleet.vocabulary.verdicts import NO_CAUSE, Reason, Recovery, State


def test_first_verdict_of_an_agent_is_kept() -> None:
    """Later rules do not change it; agents without a verdict are healthy."""
    verdicts = SubsetVerdicts(3)
    first = verdicts.put(np.array([True, False, False]), State.STRANDED, Reason.NO_TUNNEL)
    second = verdicts.put(
        np.array([True, True, False]),
        State.AT_RISK,
        Reason.AUTH_UNHEALTHY,
        np.array([7, 8, 9], np.uint16),
        (Recovery.BY_ITSELF, np.array([1.0, 2.0, 3.0])),
    )
    assert first.tolist() == [True, False, False]
    assert second.tolist() == [False, True, False]
    assert verdicts.state.tolist() == [State.STRANDED, State.AT_RISK, State.HEALTHY]
    assert verdicts.cause.tolist() == [NO_CAUSE, 8, NO_CAUSE]
    assert verdicts.recovers_at.tolist() == [0.0, 2.0, 0.0]
    assert verdicts.is_undecided.tolist() == [False, False, True]
