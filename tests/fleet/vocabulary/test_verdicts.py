"""Verdicts are on the wire and in the record: neither numbers nor names may move."""

from __future__ import annotations

from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State


def test_states_keep_their_numbers_and_slugs() -> None:
    """Byte vectors in browsers and columns in Redis hold the numbers, URLs and the API the slugs."""
    assert [state.slug for state in sorted(State)] == [
        *("unknown", "retired", "never", "stranded", "offline"),
        *("at_risk", "working", "degraded", "excess", "healthy"),
    ]
    assert [int(state) for state in sorted(State)] == list(range(10))


def test_labels_are_words() -> None:
    """People read words, not slugs."""
    assert State.AT_RISK.label == "at risk"


def test_reasons_fit_their_bits() -> None:
    """A packed verdict has five bits for the reason and three for the recovery."""
    assert max(Reason) < 32
    assert max(Recovery) < 8


def test_reason_and_recovery_slugs_are_codes() -> None:
    """Codes with hyphens, as design and API spell them."""
    assert Reason.AUTH_UNHEALTHY.slug == "auth-unhealthy"
    assert Recovery.ONLY_IF_CAUSE_RECOVERS.slug == "only-if-cause-recovers"


def test_marks_are_no_instance() -> None:
    """What stands for no cause and for the backend is told apart, and is beyond any index."""
    assert NO_CAUSE != BACKEND_CAUSE
    assert min(NO_CAUSE, BACKEND_CAUSE) > 10_000
