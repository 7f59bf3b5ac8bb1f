"""Which tries are followed by another, and when: the semantics of GEP-3440."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.retry.gep_duration import LONGEST
from fleet.protocol.retry.policy import (
    NO_RETRY,
    Bound,
    DeadlineExceeded,
    Finish,
    RetryAfter,
    RetryPolicy,
    RetryReason,
    Tries,
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
    "word", ["cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"]
)
def test_reason(word: str) -> None:
    """The five words of the enumeration in the GEP's schema."""
    assert RetryReason.read(word) == word


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("canceled", "cancelled"),
        ("CANCELLED", "cancelled"),
        ("DEADLINE_EXCEEDED", "deadline-exceeded"),
        ("Internal", "internal"),
        ("Resource_Exhausted", "resource-exhausted"),
        ("UNAVAILABLE", "unavailable"),
    ],
)
def test_reason_in_another_spelling(word: str, meant: str) -> None:
    """Refused, as Kubernetes refuses what the schema does not list; the sentence has the word to write."""
    with pytest.raises(UnknownReasonError, match=f"^'{word}' is not a retry reason\\. Use {meant}$"):
        RetryReason.read(word)


@pytest.mark.parametrize(
    "word", ["not-found", "14", "", " unavailable", "unavailable\n", "deadline exceeded"]
)
def test_unknown_reason(word: str) -> None:
    """Refused with the words that would do."""
    with pytest.raises(UnknownReasonError, match="Use one of cancelled, deadline-exceeded"):
        RetryReason.read(word)


@pytest.mark.parametrize(
    "wrong",
    [{"attempts": -1}, {"backoff": -0.1}, {"request": float("nan")}, {"backend_request": float("inf")},
     {"spread": 2.0}, {"spread": 0.9}],
)  # fmt: skip
def test_policy_nobody_could_obey(wrong: dict[str, float]) -> None:
    """Refused by the name of what is wrong."""
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: "):
        RetryPolicy(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", RetryReason)
@pytest.mark.parametrize("status", STATUSES)
def test_only_listed_statuses_are_retried(status: str, reason: RetryReason) -> None:
    """The set is exact: nothing else is retried."""
    verdict = ended(RetryPolicy(frozenset({reason}), attempts=1), status)

    assert isinstance(verdict, RetryAfter) == (RetryReason.of_status(status) is reason)


@pytest.mark.parametrize("status", STATUSES)
def test_without_reasons_the_transient_is_retried(status: str) -> None:
    """Unavailable, and nothing else that a server says."""
    assert isinstance(ended(RetryPolicy(attempts=1), status), RetryAfter) == (status == "UNAVAILABLE")


def test_timeout_of_a_try_without_reasons() -> None:
    """A try that was given up is retried; one whose server says DEADLINE_EXCEEDED by itself is not."""
    policy = RetryPolicy(backend_request=2.0)

    assert isinstance(ended(policy, "DEADLINE_EXCEEDED", after=2.0), RetryAfter)
    assert ended(policy, "DEADLINE_EXCEEDED", after=0.5) == Finish()


def test_timeout_of_a_try_with_reasons() -> None:
    """A try that was given up is a deadline exceeded, which must be listed."""
    for reasons, retried in ({RetryReason.DEADLINE_EXCEEDED}, True), ({RetryReason.UNAVAILABLE}, False):
        policy = RetryPolicy(frozenset(reasons), backend_request=2.0)

        assert isinstance(ended(policy, "DEADLINE_EXCEEDED", after=2.0), RetryAfter) == retried


@pytest.mark.parametrize("attempts", [0, 1, 3, 10])
def test_attempts_are_retries(attempts: int) -> None:
    """The tries are one more; the last gives what it got."""
    tries = Tries(RetryPolicy(ALL, attempts), now=0.0)
    verdicts = []
    for _ in range(attempts + 1):
        tries.start(0.0)
        verdicts.append(tries.judge(0.0, 0.0, "INTERNAL"))

    assert [type(verdict) for verdict in verdicts] == [RetryAfter] * attempts + [Finish]


def test_success_ends_it() -> None:
    """Any OK is the caller's."""
    assert ended(RetryPolicy(ALL, 3), "OK") == Finish()


@pytest.mark.parametrize("status", STATUSES)
def test_no_retry(status: str) -> None:
    """Without a `retry` nothing is retried."""
    assert ended(NO_RETRY, status) == Finish()


@given(
    st.floats(0.001, 3600),
    st.floats(1, 2, exclude_max=True),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=40, max_size=40),
)
def test_waits_grow_and_are_never_short(backoff: float, spread: float, chances: list[float]) -> None:
    """Whatever chance says: never below the minimum, and each longer than the one before, up to eleven years."""
    policy = RetryPolicy(backoff=backoff, spread=spread)
    waits = [policy.wait(retry, chance) for retry, chance in enumerate(chances, 1)]
    longest = max(waits[-1], 99_999 * 3600.0)

    assert min(waits) >= backoff
    assert all(later > earlier or earlier == longest for earlier, later in itertools.pairwise(waits))


def test_wait_after_very_many_tries() -> None:
    """It is the longest there is, and no float overflows."""
    assert RetryPolicy(backoff=0.1).wait(13, 0.0) == pytest.approx(409.6)
    assert RetryPolicy(backoff=0.1).wait(1_000_000, 0.5) == 99_999 * 3600.0
    assert RetryPolicy(backoff=0.0).wait(1_000_000, 0.5) == 0.0


def test_longest_backoff() -> None:
    """It is waited for, and no timer overflows by its doubling."""
    longest = LONGEST / 1000

    assert RetryPolicy(backoff=longest).wait(100, 0.9) == longest
    assert RetryPolicy(backoff=longest / 2).wait(100, 0.9) < longest


def test_no_backoff() -> None:
    """Zero seconds is what somebody asked for."""
    assert ended(RetryPolicy(attempts=1, backoff=0.0), "UNAVAILABLE") == RetryAfter(0.0)


def test_timeouts_of_tries() -> None:
    """The least of the try's own, what is left of the request's and what is left of the caller's."""
    tries = Tries(RetryPolicy(request=10.0, backend_request=3.0), now=100.0, timeout=8.0)

    assert [tries.start(now) for now in (100.0, 104.0, 106.5, 109.0)] == [3.0, 3.0, 1.5, 0.0]


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
def test_timeout_of_the_first_try(policy: RetryPolicy, timeout: float | None, expected: float | None) -> None:
    """Zero is none."""
    assert Tries(policy, now=7.0, timeout=timeout).start(7.0) == expected


def test_wait_that_does_not_fit() -> None:
    """The answer is the timeout, at once, and says why the last try failed."""
    tries = Tries(RetryPolicy(attempts=3, backoff=5.0, request=4.0), now=0.0)
    tries.start(0.0)
    verdict = tries.judge(1.0, 0.0, "UNAVAILABLE", "down")

    assert isinstance(verdict, DeadlineExceeded)
    assert verdict.details == (
        "the request timeout of 4 s would expire before the next attempt, which must wait 5 s (attempts: 1);"
        " the last attempt failed with UNAVAILABLE: down"
    )


def test_time_is_over_during_a_retry() -> None:
    """The timeout wins over the reasons, and what failed before is not forgotten."""
    tries = Tries(RetryPolicy(ALL, attempts=5, backoff=0.1, request=4.0), now=0.0)
    tries.start(0.0)
    assert isinstance(tries.judge(0.1, 0.0, "INTERNAL", "oh"), RetryAfter)
    tries.start(0.2)
    verdict = tries.judge(4.0, 0.0, "DEADLINE_EXCEEDED")

    assert isinstance(verdict, DeadlineExceeded)
    assert (
        verdict.details
        == "the request timeout of 4 s expired (attempts: 2); the previous attempt failed with INTERNAL: oh"
    )


def test_time_is_over_during_the_first_try() -> None:
    """What the try says is what the caller gets."""
    assert ended(RetryPolicy(ALL, 5, request=4.0), "DEADLINE_EXCEEDED", after=4.0) == Finish()


def test_callers_deadline_bounds_the_waits() -> None:
    """As the request's own timeout does."""
    tries = Tries(RetryPolicy(attempts=3, backoff=5.0), now=0.0, timeout=4.0)
    tries.start(0.0)

    verdict = tries.judge(0.1, 0.0, "UNAVAILABLE")
    assert isinstance(verdict, DeadlineExceeded)
    assert verdict.details.startswith("the caller's deadline of 4 s would expire before the next attempt")


@pytest.mark.parametrize(
    ("policy", "timeout", "bounds"),
    [
        (RetryPolicy(), None, [None, None]),
        (RetryPolicy(), 4.0, [Bound.CALLER] * 2),
        (RetryPolicy(request=4.0), 4.0, [Bound.CALLER] * 2),
        (RetryPolicy(request=3.0), 4.0, [Bound.REQUEST] * 2),
        (RetryPolicy(backend_request=2.0), None, [Bound.TRY] * 2),
        (RetryPolicy(backend_request=2.0), 4.0, [Bound.TRY, Bound.CALLER]),
        (RetryPolicy(backend_request=4.0), 4.0, [Bound.CALLER] * 2),
        (RetryPolicy(request=4.0, backend_request=2.0), None, [Bound.TRY, Bound.REQUEST]),
    ],
)
def test_limit_of_a_try_has_an_owner(
    policy: RetryPolicy, timeout: float | None, bounds: list[Bound | None]
) -> None:
    """Of equal limits the caller's: what the caller wants is no failure of a backend. The second try is at 3 s."""
    tries = Tries(policy, now=0.0, timeout=timeout)
    seen = []
    for now in (0.0, 3.0):
        tries.start(now)
        seen.append(tries.bound)

    assert seen == bounds


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
    tries = Tries(RetryPolicy(attempts=1, backoff=0.1), now=0.0)
    tries.start(0.0)

    assert tries.judge(0.0, 0.0, "UNAVAILABLE", "", pushback) == expected


def ended(policy: RetryPolicy, status: str, *, after: float = 0.1) -> RetryAfter | Finish | DeadlineExceeded:
    """What follows a first try that ended so."""
    tries = Tries(policy, now=50.0)
    tries.start(50.0)
    return tries.judge(50.0 + after, 0.0, status)
