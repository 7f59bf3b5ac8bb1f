from __future__ import annotations

import pytest

from fleet.alerts.wording.words import (
    AffectedCounts,
    describe_counts,
    describe_recovery,
    describe_remaining,
    find_next_midnight,
    format_apart,
    format_by,
    format_remaining,
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
    ("at", "earlier", "text"),
    [
        (NOW + 30, NOW, "14:13:50 UTC"),
        (NOW + 30, NOW - 60, "14:13 UTC"),
        (NOW + 50, NOW, "14:14 UTC"),
        (NOW + 30, None, "14:13 UTC"),
        (NOW + 86_400, NOW, "2026-09-22 14:13 UTC"),
    ],
)
def test_two_moments_of_a_text_never_look_equal(at: float, earlier: float | None, text: str) -> None:
    """A deadline in the minute of the start has seconds."""
    assert format_apart(at, earlier, NOW) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, ""), (0, ""), (0.1, "in less than 10 s"), (9.9, "in less than 10 s"), (10, "in about 10 s"),
        (14.9, "in about 10 s"), (15, "in about 20 s"), (48, "in about 50 s"), (94, "in about 90 s"),
        (95, "in about 2 min"), (700, "in about 12 min"), (5_699, "in about 95 min"), (5_700, "in about 2 h"),
    ],
)  # fmt: skip
def test_remaining_time_is_as_exact_as_it_helps(seconds: float, text: str) -> None:
    """headline.js says the same: tests/browser/test_headline.py."""
    assert format_remaining(seconds) == text


def test_deadline_and_recovery_as_remaining_times() -> None:
    """Each that is known; one that has passed is due."""
    assert describe_remaining(NOW + 48, NOW + 700, NOW) == (
        "First stranding in about 50 s. Recovery in about 12 min."
    )
    assert describe_remaining(NOW - 1, None, NOW) == "First stranding is due."
    assert describe_remaining(None, None, NOW) == ""


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


def test_counts_with_their_start() -> None:
    """It is that of the first state alone."""
    since_text = " since 10:14 UTC"
    assert describe_counts(AffectedCounts(12, 55), since_text=since_text) == (
        "12 agents stranded since 10:14 UTC and 55 at risk"
    )
    assert (
        describe_counts(AffectedCounts(0, 55), since_text=since_text) == "55 agents at risk since 10:14 UTC"
    )


def test_counts_in_the_past_and_of_an_agent_set() -> None:
    """For notifications."""
    assert describe_counts(AffectedCounts(2, 3), is_past=True) == "2 agents were stranded and 3 at risk"
    assert describe_counts(AffectedCounts(1), agent_set="critical") == "1 critical agent stranded"


@pytest.mark.parametrize(
    ("cause", "recovers_at", "is_stuck", "sentence"),
    [
        (PROXY, NOW, False, "The agents recover automatically by 14:14 UTC."),
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
