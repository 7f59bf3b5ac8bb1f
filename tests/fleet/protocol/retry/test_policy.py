"""Retry policy: which attempts are retried, and when. The semantics of GEP-3440."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.retry.gep_duration import LONGEST_MS
from fleet.protocol.retry.policy import (
    NO_RETRY,
    DeadlineExceeded,
    Finish,
    RetryAfter,
    RetryPolicy,
    RetryReason,
    RetryState,
    TimeoutKind,
    UnknownReasonError,
)

ALL = frozenset(RetryReason)
STATUSES = [
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]


@pytest.mark.parametrize(
    "text", ["cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"]
)
def test_read_reason(text: str) -> None:
    """These five values are the enumeration in the GEP's schema."""
    assert RetryReason.read(text) == text


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        ("canceled", "cancelled"),
        ("CANCELLED", "cancelled"),
        ("DEADLINE_EXCEEDED", "deadline-exceeded"),
        ("Internal", "internal"),
        ("Resource_Exhausted", "resource-exhausted"),
        ("UNAVAILABLE", "unavailable"),
    ],
)
def test_reason_in_another_spelling_is_refused(text: str, correct: str) -> None:
    """Kubernetes refuses it too; the error has the correct spelling."""
    with pytest.raises(UnknownReasonError, match=f"^'{text}' is not a retry reason\\. Use {correct}$"):
        RetryReason.read(text)


@pytest.mark.parametrize(
    "text", ["not-found", "14", "", " unavailable", "unavailable\n", "deadline exceeded"]
)
def test_unknown_reason_is_refused(text: str) -> None:
    """The error lists the valid reasons."""
    with pytest.raises(UnknownReasonError, match="Use one of cancelled, deadline-exceeded"):
        RetryReason.read(text)


@pytest.mark.parametrize(
    "invalid",
    [{"attempts": -1}, {"backoff": -0.1}, {"request": float("nan")}, {"backend_request": float("inf")},
     {"spread": 2.0}, {"spread": 0.9}],
)  # fmt: skip
def test_invalid_policy_is_refused(invalid: dict[str, float]) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=f"^{next(iter(invalid))}: "):
        RetryPolicy(**invalid)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", RetryReason)
@pytest.mark.parametrize("status", STATUSES)
def test_only_listed_statuses_are_retried(status: str, reason: RetryReason) -> None:
    verdict = judge_first_attempt(RetryPolicy(frozenset({reason}), attempts=1), status)

    assert isinstance(verdict, RetryAfter) == (RetryReason.of_status(status) is reason)


@pytest.mark.parametrize("status", STATUSES)
def test_without_reasons_only_unavailable_is_retried(status: str) -> None:
    assert isinstance(judge_first_attempt(RetryPolicy(attempts=1), status), RetryAfter) == (
        status == "UNAVAILABLE"
    )


def test_attempt_timeout_without_reasons_is_retried() -> None:
    """A DEADLINE_EXCEEDED that the server sent earlier is not retried."""
    policy = RetryPolicy(backend_request=2.0)

    assert isinstance(judge_first_attempt(policy, "DEADLINE_EXCEEDED", after=2.0), RetryAfter)
    assert judge_first_attempt(policy, "DEADLINE_EXCEEDED", after=0.5) == Finish()


def test_attempt_timeout_is_retried_if_listed() -> None:
    """An attempt that timed out counts as deadline-exceeded."""
    for reasons, is_retried in ({RetryReason.DEADLINE_EXCEEDED}, True), ({RetryReason.UNAVAILABLE}, False):
        policy = RetryPolicy(frozenset(reasons), backend_request=2.0)

        assert (
            isinstance(judge_first_attempt(policy, "DEADLINE_EXCEEDED", after=2.0), RetryAfter) == is_retried
        )


@pytest.mark.parametrize("attempts", [0, 1, 3, 10])
def test_attempts_are_retries(attempts: int) -> None:
    """`attempts` counts the retries; the last attempt's outcome is final."""
    state = RetryState(RetryPolicy(ALL, attempts), now=0.0)
    verdicts = []
    for _ in range(attempts + 1):
        state.start_try(0.0)
        verdicts.append(state.decide(0.0, 0.0, "INTERNAL"))

    assert [type(verdict) for verdict in verdicts] == [RetryAfter] * attempts + [Finish]


def test_success_is_final() -> None:
    assert judge_first_attempt(RetryPolicy(ALL, 3), "OK") == Finish()


@pytest.mark.parametrize("status", STATUSES)
def test_policy_without_retry_retries_nothing(status: str) -> None:
    assert judge_first_attempt(NO_RETRY, status) == Finish()


@given(
    st.floats(0.001, 3600),
    st.floats(1, 2, exclude_max=True),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=40, max_size=40),
)
def test_waits_grow_and_are_never_below_the_backoff(
    backoff: float, spread: float, chances: list[float]
) -> None:
    """For any jitter each wait is longer than the one before, up to eleven years."""
    policy = RetryPolicy(backoff=backoff, spread=spread)
    waits = [policy.wait(retry, chance) for retry, chance in enumerate(chances, 1)]
    longest = max(waits[-1], 99_999 * 3600.0)

    assert min(waits) >= backoff
    assert all(later > earlier or earlier == longest for earlier, later in itertools.pairwise(waits))


def test_wait_after_very_many_attempts_is_capped() -> None:
    """No float overflows."""
    assert RetryPolicy(backoff=0.1).wait(13, 0.0) == pytest.approx(409.6)
    assert RetryPolicy(backoff=0.1).wait(1_000_000, 0.5) == 99_999 * 3600.0
    assert RetryPolicy(backoff=0.0).wait(1_000_000, 0.5) == 0.0


def test_longest_backoff_is_not_doubled_beyond_the_cap() -> None:
    longest = LONGEST_MS / 1000

    assert RetryPolicy(backoff=longest).wait(100, 0.9) == longest
    assert RetryPolicy(backoff=longest / 2).wait(100, 0.9) < longest


def test_zero_backoff_retries_at_once() -> None:
    assert judge_first_attempt(RetryPolicy(attempts=1, backoff=0.0), "UNAVAILABLE") == RetryAfter(0.0)


def test_attempt_gets_the_shortest_timeout() -> None:
    """It is the least of the attempt's timeout, the rest of the request's and the rest of the caller's."""
    state = RetryState(RetryPolicy(request=10.0, backend_request=3.0), now=100.0, timeout=8.0)

    assert [state.start_try(now) for now in (100.0, 104.0, 106.5, 109.0)] == [3.0, 3.0, 1.5, 0.0]


@pytest.mark.parametrize(
    ("policy", "timeout", "expected"),
    [
        (RetryPolicy(), None, None),
        (RetryPolicy(request=0.0, backend_request=0.0), None, None),
        (RetryPolicy(request=5.0), None, 5.0),
        (RetryPolicy(), 4.0, 4.0),
        (RetryPolicy(request=5.0), 4.0, 4.0),
        (RetryPolicy(request=3.0), 4.0, 3.0),
        (RetryPolicy(backend_request=2.0), None, 2.0),
    ],
)
def test_timeout_of_the_first_attempt(
    policy: RetryPolicy, timeout: float | None, expected: float | None
) -> None:
    """Zero means no timeout."""
    assert RetryState(policy, now=7.0, timeout=timeout).start_try(7.0) == expected


def test_wait_beyond_the_timeout_fails_at_once() -> None:
    """The error has the reason why the last attempt failed."""
    state = RetryState(RetryPolicy(attempts=3, backoff=5.0, request=4.0), now=0.0)
    state.start_try(0.0)
    verdict = state.decide(1.0, 0.0, "UNAVAILABLE", "down")

    assert isinstance(verdict, DeadlineExceeded)
    assert verdict.details == (
        "the request timeout of 4 s would expire before the next attempt, which must wait 5 s (attempts: 1);"
        " the last attempt failed with UNAVAILABLE: down"
    )


def test_timeout_during_a_retry() -> None:
    """The timeout takes precedence over the reasons; the error has the previous failure."""
    state = RetryState(RetryPolicy(ALL, attempts=5, backoff=0.1, request=4.0), now=0.0)
    state.start_try(0.0)
    assert isinstance(state.decide(0.1, 0.0, "INTERNAL", "oh"), RetryAfter)
    state.start_try(0.2)
    verdict = state.decide(4.0, 0.0, "DEADLINE_EXCEEDED")

    assert isinstance(verdict, DeadlineExceeded)
    assert (
        verdict.details
        == "the request timeout of 4 s expired (attempts: 2); the previous attempt failed with INTERNAL: oh"
    )


def test_timeout_during_the_first_attempt() -> None:
    """The caller gets the status of the attempt."""
    assert judge_first_attempt(RetryPolicy(ALL, 5, request=4.0), "DEADLINE_EXCEEDED", after=4.0) == Finish()


def test_callers_deadline_bounds_the_waits() -> None:
    state = RetryState(RetryPolicy(attempts=3, backoff=5.0), now=0.0, timeout=4.0)
    state.start_try(0.0)

    verdict = state.decide(0.1, 0.0, "UNAVAILABLE")
    assert isinstance(verdict, DeadlineExceeded)
    assert verdict.details.startswith("the caller's deadline of 4 s would expire before the next attempt")


@pytest.mark.parametrize(
    ("policy", "timeout", "expected"),
    [
        (RetryPolicy(), None, [None, None]),
        (RetryPolicy(), 4.0, [TimeoutKind.CALLER] * 2),
        (RetryPolicy(request=4.0), 4.0, [TimeoutKind.CALLER] * 2),
        (RetryPolicy(request=3.0), 4.0, [TimeoutKind.REQUEST] * 2),
        (RetryPolicy(backend_request=2.0), None, [TimeoutKind.ATTEMPT] * 2),
        (RetryPolicy(backend_request=2.0), 4.0, [TimeoutKind.ATTEMPT, TimeoutKind.CALLER]),
        (RetryPolicy(backend_request=4.0), 4.0, [TimeoutKind.CALLER] * 2),
        (RetryPolicy(request=4.0, backend_request=2.0), None, [TimeoutKind.ATTEMPT, TimeoutKind.REQUEST]),
    ],
)
def test_bound_of_an_attempt(
    policy: RetryPolicy, timeout: float | None, expected: list[TimeoutKind | None]
) -> None:
    """Of equal limits the caller's counts, as it is no backend failure. The second attempt starts at 3 s."""
    state = RetryState(policy, now=0.0, timeout=timeout)
    bounds = []
    for now in (0.0, 3.0):
        state.start_try(now)
        bounds.append(state.timeout_kind)

    assert bounds == expected


@pytest.mark.parametrize(
    ("pushback", "expected"),
    [
        ("300", RetryAfter(0.3)),
        ("0", RetryAfter(0.1)),
        ("50", RetryAfter(0.1)),
        ("-1", Finish()),
        ("", Finish()),
        ("soon", Finish()),
        ("1.5", Finish()),
        ("3\n", Finish()),
        ("\u0663", Finish()),
        ("9" * 5000, Finish()),
    ],
)
def test_pushback(pushback: str, expected: RetryAfter | Finish) -> None:
    """A server may ask for a longer wait or for no retry, never for less than the minimum."""
    state = RetryState(RetryPolicy(attempts=1, backoff=0.1), now=0.0)
    state.start_try(0.0)

    assert state.decide(0.0, 0.0, "UNAVAILABLE", "", pushback) == expected


def judge_first_attempt(
    policy: RetryPolicy, status: str, *, after: float = 0.1
) -> RetryAfter | Finish | DeadlineExceeded:
    """Return the verdict about a first attempt that ended with this status."""
    state = RetryState(policy, now=50.0)
    state.start_try(50.0)
    return state.decide(50.0 + after, 0.0, status)
