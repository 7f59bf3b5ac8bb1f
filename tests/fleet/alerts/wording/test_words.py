from __future__ import annotations

import pytest

from fleet.alerts.wording.words import (
    AffectedCounts,
    describe_counts,
    describe_recovery,
    find_next_midnight,
    format_by,
    format_since,
)
from fleet.vocabulary.incidents import Cause, CauseKind

#: 2026-09-21 14:13:20 UTC.
NOW = 1_790_000_000.0
AUTH = Cause(CauseKind.AUTH, "a", "auth-1")
PROXY = Cause(CauseKind.PROXY, "p", "proxy-1")
BACKEND = Cause(CauseKind.BACKEND, "default", "auth backend of cluster default")


def test_times_are_rounded_to_what_is_true() -> None:
    """A start to the minute before, a latest time to the minute after; another day has its date."""
    assert format_since(NOW, NOW) == "14:13 UTC"
    assert format_by(NOW, NOW) == "14:14 UTC"
    assert format_since(NOW - 86_400, NOW) == "2026-09-20 14:13 UTC"
    midnight = find_next_midnight(NOW)
    assert (format_since(NOW, midnight - 1), format_since(NOW, midnight)) == (
        "14:13 UTC",
        "2026-09-21 14:13 UTC",
    )


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        (AffectedCounts(1_200), "1,200 agents stranded"),
        (AffectedCounts(1), "1 agent stranded"),
        (AffectedCounts(12, 55), "12 agents stranded and 55 at risk"),
        (AffectedCounts(0, 55), "55 agents at risk"),
        (AffectedCounts(), ""),
    ],
)
def test_counts_in_words(counts: AffectedCounts, text: str) -> None:
    """The states without agents are left out."""
    assert describe_counts(counts) == text


def test_counts_in_the_past_and_of_an_agent_set() -> None:
    """For notifications."""
    assert describe_counts(AffectedCounts(2, 3), is_past=True) == "2 agents were stranded and 3 at risk"
    assert describe_counts(AffectedCounts(1), agent_set="critical") == "1 critical agent stranded"


@pytest.mark.parametrize(
    ("cause", "recovers_at", "is_stuck", "sentence"),
    [
        (PROXY, NOW, False, "Automatic recovery by 14:14 UTC."),
        (PROXY, None, False, "The recovery time is not known."),
        (AUTH, None, True, "No automatic recovery."),
        (PROXY, None, True, "No automatic recovery: proxy-1 must recover first."),
        (BACKEND, None, True, "No automatic recovery: the auth backend must recover first."),
        (AUTH, NOW, True, "Some agents recover automatically by 14:14 UTC, the others only after auth-1."),
    ],
)
def test_recovery_in_words(cause: Cause, recovers_at: float | None, is_stuck: bool, sentence: str) -> None:
    """No campaign is offered in words: whether one is possible only the actions know."""
    assert describe_recovery(cause, recovers_at, NOW, is_stuck=is_stuck) == sentence
