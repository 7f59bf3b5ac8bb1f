"""The state of an instance, from its facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fleet.monitoring.classify import instance_sentence, instance_state
from fleet.monitoring.classify.instances import sick_since_of
from fleet.vocabulary.instances import InstanceKind, InstanceState, PollAttempt, ServingStatus
from tests.fakes.small_fleet import (
    DEREGISTERED,
    EXPIRED,
    NOW,
    OK,
    SILENT,
    TIMING,
    UNHEALTHY,
    UNPOLLED,
    instance,
)

FAILED_NOW = PollAttempt(NOW - 0.2, False, "refused")

#: (name, facts, state); the stale age of these tests is 10 s.
ROWS: list[tuple[str, Mapping[str, Any], InstanceState]] = [
    ("answers well", OK, InstanceState.OK),
    ("never polled", UNPOLLED, InstanceState.UNKNOWN),
    ("two attempts failed", SILENT, InstanceState.SILENT),
    ("NOT_SERVING and 503", UNHEALTHY, InstanceState.UNHEALTHY),
    ("NOT_SERVING alone", {"serving": ServingStatus.NOT_SERVING}, InstanceState.UNHEALTHY),
    ("readyz 503 alone", {"readyz": 503}, InstanceState.UNHEALTHY),
    ("readyz 400, recovering", {"readyz": 400}, InstanceState.UNHEALTHY),
    (
        "readyz 503 without gRPC health",
        {"serving": None, "serving_at": None, "readyz": 503},
        InstanceState.UNHEALTHY,
    ),
    ("no readyz at all", {"readyz": None, "readyz_at": None}, InstanceState.OK),
    ("health service does not know the name", {"serving": ServingStatus.SERVICE_UNKNOWN}, InstanceState.OK),
    ("resource expired", EXPIRED, InstanceState.EXPIRED),
    ("expired exactly now", {"expires_at": NOW}, InstanceState.EXPIRED),
    ("expires in a moment", {"expires_at": NOW + 0.001}, InstanceState.OK),
    ("expired, and no list answered since", {"expires_at": NOW - 1, "listed_at": NOW - 2}, InstanceState.OK),
    (
        "expired when the list was answered",
        {"expires_at": NOW - 1, "listed_at": NOW - 1},
        InstanceState.EXPIRED,
    ),
    ("expired at its word", {"expires_at": NOW - 1, "listed_at": None}, InstanceState.EXPIRED),
    ("no resource was ever seen", {"expires_at": None}, InstanceState.OK),
    ("deregistered", DEREGISTERED, InstanceState.GONE),
    ("deregistered and silent", {**DEREGISTERED, **SILENT}, InstanceState.GONE),
    ("silent and expired", {**SILENT, **EXPIRED}, InstanceState.SILENT),
    ("unhealthy and expired", {**UNHEALTHY, **EXPIRED}, InstanceState.EXPIRED),
    ("expired and no longer polled", {**UNPOLLED, **EXPIRED}, InstanceState.EXPIRED),
    (
        "one failed attempt after a good one",
        {"attempts": (FAILED_NOW, PollAttempt(NOW - 1, True))},
        InstanceState.OK,
    ),
    (
        "a good attempt after a failed one",
        {"attempts": (PollAttempt(NOW, True), FAILED_NOW)},
        InstanceState.OK,
    ),
    ("one failed attempt and nothing before", {**UNPOLLED, "attempts": (FAILED_NOW,)}, InstanceState.UNKNOWN),
    (
        "a failure, and one from before we paused",
        {**UNPOLLED, "attempts": (FAILED_NOW, PollAttempt(NOW - 600, False))},
        InstanceState.UNKNOWN,
    ),
    (
        "polled exactly a stale age ago",
        {"attempts": (PollAttempt(NOW - 10, True),), "serving_at": NOW - 10, "readyz_at": NOW - 10},
        InstanceState.UNKNOWN,
    ),
    (
        "polled just within the stale age",
        {"attempts": (PollAttempt(NOW - 9.9, True),), "serving_at": NOW - 10, "readyz_at": NOW - 10},
        InstanceState.OK,
    ),
    (
        "failed twice, too long ago to count",
        {**UNPOLLED, "attempts": (PollAttempt(NOW - 10, False), PollAttempt(NOW - 11, False))},
        InstanceState.UNKNOWN,
    ),
    (
        "without an address, listed",
        {**UNPOLLED, "address": "", "expires_at": NOW + 5, "listed_at": NOW},
        InstanceState.OK,
    ),
    (
        "without an address any more, listed",
        {**UNPOLLED, "address": "", "expires_at": NOW + 5, "listed_at": NOW, "attempts": (FAILED_NOW,)},
        InstanceState.OK,
    ),
    (
        "only a diag address, listed, not polled yet",
        {**UNPOLLED, "address": "", "diag_address": "h:2", "expires_at": NOW + 5, "listed_at": NOW},
        InstanceState.OK,
    ),
    (
        "only a diag address, listed, its first attempt failed",
        {
            **UNPOLLED,
            "address": "",
            "diag_address": "h:2",
            "expires_at": NOW + 5,
            "listed_at": NOW,
            "attempts": (FAILED_NOW,),
        },
        InstanceState.OK,
    ),
    (
        "said NOT_SERVING long ago and answers otherwise",
        {"serving": ServingStatus.NOT_SERVING, "serving_at": NOW - 10},
        InstanceState.OK,
    ),
]


@pytest.mark.parametrize(("facts", "state"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_instance_state_row(facts: Mapping[str, Any], state: InstanceState) -> None:
    """A sentence explains every state except OK."""
    facts_of_instance = instance(0, InstanceKind.PROXY, "proxy-1", **facts)
    assert instance_state(facts_of_instance, NOW, TIMING) is state
    sentence = instance_sentence(facts_of_instance, state, NOW)
    assert (sentence == "") == (state is InstanceState.OK)
    assert not sentence or (sentence.startswith("proxy-1 ") and sentence.endswith("."))


def test_instance_state_rows_cover_every_state() -> None:
    """No state is without a row."""
    assert {row[2] for row in ROWS} == set(InstanceState)


def test_instance_sentence_says_what_is_wrong() -> None:
    """The error, the serving status or its reason, and the status code of /readyz."""
    silent = instance(0, InstanceKind.AUTH, "auth-1", **SILENT)
    assert instance_sentence(silent, InstanceState.SILENT, NOW) == (
        "auth-1 is not responding: the last two attempts failed (deadline exceeded)."
    )
    unhealthy = instance(0, InstanceKind.AUTH, "auth-1", **UNHEALTHY)
    assert instance_sentence(unhealthy, InstanceState.UNHEALTHY, NOW) == (
        "auth-1 responds, but reports NOT_SERVING and /readyz returns 503."
    )
    facts = UNHEALTHY | {
        "readyz": None,
        "serving_problem": "its leaf node port 10.0.0.1:7422 does not respond",
    }
    unhealthy = instance(0, InstanceKind.PROXY, "hub-1", **facts)
    assert instance_sentence(unhealthy, InstanceState.UNHEALTHY, NOW) == (
        "hub-1 responds, but its leaf node port 10.0.0.1:7422 does not respond."
    )


@pytest.mark.parametrize(
    ("facts", "end"),
    [
        ({}, ""),
        (UNHEALTHY, ": it reports NOT_SERVING and /readyz returns 503"),
        ({**UNHEALTHY, "serving": ServingStatus.SERVING}, ": /readyz returns 503"),
        ({**UNHEALTHY, "attempts": SILENT["attempts"]}, ""),
    ],
)
def test_sentence_of_an_expired_instance_has_what_it_reports(facts: Mapping[str, Any], end: str) -> None:
    """As long as it responds: an auth that lost its backend expires for that reason."""
    expired_auth = instance(0, InstanceKind.AUTH, "auth-1", **{**facts, **EXPIRED})
    assert instance_sentence(expired_auth, InstanceState.EXPIRED, NOW) == (
        f"auth-1 did not renew its heartbeat in time{end}."
    )


@pytest.mark.parametrize(
    ("facts", "state", "since"),
    [
        (DEREGISTERED, InstanceState.GONE, NOW - 2),
        (SILENT, InstanceState.SILENT, NOW - 2),
        ({**SILENT, "sick_since": None}, InstanceState.SILENT, NOW - 1.2),
        ({**EXPIRED, "sick_since": None}, InstanceState.EXPIRED, NOW - 1),
        ({**UNHEALTHY, "sick_since": None}, InstanceState.UNHEALTHY, NOW),
    ],
)
def test_sick_since_falls_back_on_other_facts(
    facts: Mapping[str, Any], state: InstanceState, since: float
) -> None:
    """Without a stored time, the attempts or the expiry are used."""
    assert sick_since_of(instance(0, InstanceKind.AUTH, "auth-1", **facts), state, NOW) == since
