"""A proxy that is sick because the auth it heartbeats through is: whose fault that is, and what agents hear of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fleet.monitoring.classify import classify, classify_columns, instance_sentence, prepare_frame
from fleet.monitoring.classify.dependencies import Dependency
from fleet.monitoring.columns import HAD_TUNNEL, NO_INSTANCE, empty_heartbeats, empty_memory
from fleet.monitoring.evidence import FleetEvidence
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, Reason, Recovery, State
from tests.fakes.fleets import random_fleet
from tests.fakes.small_fleet import (
    AUTH_1,
    AUTH_2,
    EXPIRED,
    GONE,
    NOW,
    PROXY_1,
    PROXY_2,
    SILENT,
    UNHEALTHY,
    agent,
    fleet,
    heartbeat,
)

Facts = Mapping[str, Any]

#: What a proxy says that heartbeats through auth-1.
THROUGH: Facts = {"heartbeat_auth": "uuid-auth-1"}
#: Everything sick in the small fleet fell sick 2 s ago, and heartbeats of TTL 10 s come within 6 s.
MOVES_AT = NOW - 2 + 6 + 6


def since(at: float, facts: Facts) -> Facts:
    return {**facts, "sick_since": at}


@pytest.mark.parametrize(
    ("auth", "proxy", "cause"),
    [
        (UNHEALTHY, {**UNHEALTHY, **THROUGH}, AUTH_1),
        (UNHEALTHY, {**EXPIRED, **THROUGH}, AUTH_1),
        (SILENT, {**EXPIRED, **THROUGH}, AUTH_1),
        (EXPIRED, {**UNHEALTHY, **THROUGH}, AUTH_1),
        (GONE, {**UNHEALTHY, **THROUGH}, AUTH_1),
        # The auth is well, or not the one.
        ({}, {**EXPIRED, **THROUGH}, PROXY_1),
        (UNHEALTHY, {**EXPIRED, "heartbeat_auth": "uuid-auth-2"}, PROXY_1),
        (UNHEALTHY, {**EXPIRED, "heartbeat_auth": "uuid-of-nobody"}, PROXY_1),
        (UNHEALTHY, EXPIRED, PROXY_1),
        # A proxy that does not answer, or left, does not only lack its auth; one that is well lacks nothing.
        (UNHEALTHY, {**SILENT, **THROUGH}, PROXY_1),
        (UNHEALTHY, {**GONE, **THROUGH}, PROXY_1),
        (UNHEALTHY, THROUGH, PROXY_1),
        # Sick long before its auth; within the margin, of one round of heartbeats or of what makes a source stale.
        (UNHEALTHY, since(NOW - 12.5, {**UNHEALTHY, **THROUGH}), PROXY_1),
        (UNHEALTHY, since(NOW - 11.5, {**UNHEALTHY, **THROUGH}), AUTH_1),
        ({**UNHEALTHY, "ttl": 600.0}, since(NOW - 300, {**UNHEALTHY, **THROUGH}), AUTH_1),
        (since(NOW - 9000, UNHEALTHY), {**UNHEALTHY, **THROUGH}, AUTH_1),
    ],
)
def test_cause_of_a_sick_proxy(auth: Facts, proxy: Facts, cause: int) -> None:
    """The auth it heartbeats through, if that fell sick first as far as polls can tell; else itself."""
    frame = prepare_frame(fleet(auth_1=auth, proxy_1=proxy), NOW)
    assert frame.cause_of(PROXY_1) == cause
    assert frame.cause_of(PROXY_2) == PROXY_2
    assert frame.tables.causes[[AUTH_1, PROXY_1, PROXY_2, 77, BACKEND_CAUSE, NO_INSTANCE]].tolist() == [
        *(AUTH_1, cause, PROXY_2, 77, BACKEND_CAUSE, NO_INSTANCE)
    ]


def test_backend_is_the_cause_when_all_auths_are_sick() -> None:
    """The same as of agents behind those auths; nobody moves."""
    frame = prepare_frame(fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY, proxy_1={**UNHEALTHY, **THROUGH}), NOW)
    assert frame.dependencies == {PROXY_1: Dependency(BACKEND_CAUSE, None)}
    assert frame.cause_clause(PROXY_1) == "all auths failed together"


@pytest.mark.parametrize(("ttl", "moves_at"), [(10.0, MOVES_AT), (600.0, NOW - 2 + 60 + 360)])
def test_proxy_moves_to_another_auth_by_itself(ttl: float, moves_at: float) -> None:
    """It tries again within a minute, and is well by its next heartbeat; without another auth it stays sick."""
    proxy = {**UNHEALTHY, **THROUGH, "ttl": ttl}
    found = prepare_frame(fleet(auth_1=UNHEALTHY, proxy_1=proxy), NOW).dependencies[PROXY_1]
    assert found == Dependency(AUTH_1, moves_at)
    alone = since(NOW - 9000, SILENT)
    assert prepare_frame(fleet(auth_1=UNHEALTHY, auth_2=alone, proxy_1=proxy), NOW).dependencies == {
        PROXY_1: Dependency(AUTH_1, None)
    }


def behind(proxy_1: Facts, proxy_2: Facts, auth_2: Facts | None = None) -> FleetEvidence:
    """Make auth-1 sick, with these proxies; the agent of the small fleet heartbeats through auth-2."""
    return fleet(auth_1=UNHEALTHY, auth_2=auth_2 or {}, proxy_1=proxy_1, proxy_2=proxy_2)


ELSEWHERE = heartbeat(auth=AUTH_2)
SICK: Facts = {**UNHEALTHY, **THROUGH}


def test_agents_on_a_proxy_behind_a_sick_auth() -> None:
    """The reason says what is wrong with the proxy, the cause what must be mended, and the sentence both."""
    verdict = classify(agent(heartbeat=ELSEWHERE, last_auth=AUTH_2), behind(SICK, {}), NOW)
    assert (verdict.state, verdict.reason, verdict.cause) == (
        State.AT_RISK,
        Reason.PROXY_UNHEALTHY,
        "uuid-auth-1",
    )
    assert (verdict.recovery, verdict.recovers_at) == (Recovery.BY_ITSELF, MOVES_AT)
    assert verdict.sentence == (
        "No proxy that the agent is connected to is OK: proxy-1 is unhealthy because its auth auth-1 "
        "is unhealthy. The agent recovers automatically."
    )


def test_agents_with_nowhere_to_go_wait_for_the_auth() -> None:
    """Once the promise that the proxies move was not kept, only the auth can mend it."""
    late = since(NOW - 60, SICK)
    seen = fleet(auth_1=since(NOW - 60, UNHEALTHY), proxy_1=late, proxy_2=late)
    verdict = classify(agent(heartbeat=ELSEWHERE, last_auth=AUTH_2), seen, NOW)
    assert (verdict.cause, verdict.recovery) == ("uuid-auth-1", Recovery.ONLY_IF_CAUSE_RECOVERS)
    assert verdict.sentence.endswith(
        "The agent recovers only when auth-1 does: no other instance is available."
    )


def test_agents_with_nowhere_to_go_wait_for_the_backend() -> None:
    """Where all auths fell sick, the backend is named in every sentence."""
    seen = fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY, proxy_1=SICK, proxy_2=SICK)
    stranded = agent(heartbeat=None, last_auth=None, tunnels=(), lost_at=NOW - 2)
    verdict = classify(stranded, seen, NOW)
    assert (verdict.state, verdict.cause) == (State.STRANDED, "backend/default")
    assert verdict.sentence.endswith("The agent recovers only when the backend does.")
    assert "because all auths failed together" in verdict.sentence


@pytest.mark.parametrize(
    ("proxy", "sentence"),
    [
        (
            SICK,
            (
                "proxy-1 responds, but reports NOT_SERVING and /readyz returns 503: its auth auth-1 "
                "is unhealthy."
            ),
        ),
        ({**EXPIRED, **THROUGH}, "proxy-1 has expired: its auth auth-1 is unhealthy."),
    ],
)
def test_sentence_of_the_proxy(proxy: Facts, sentence: str) -> None:
    """What is wrong with it, and why."""
    frame = prepare_frame(behind(proxy, {}), NOW)
    standing = frame.conditions[PROXY_1]
    assert standing.state is not InstanceState.OK
    assert instance_sentence(standing.facts, standing.state, NOW, frame.cause_clause(PROXY_1)) == sentence


def test_random_fleets_have_dependencies() -> None:
    """The law that holds the two classifiers equal meets proxies behind sick auths, with and without another auth."""
    found = [
        dependency
        for seed in range(60)
        for dependency in prepare_frame(
            random_fleet(seed, 0, 3, 4, 0.5).evidence, 1_000_000.0
        ).dependencies.values()
    ]
    assert {dependency.cause == BACKEND_CAUSE for dependency in found} == {True, False}
    assert {dependency.moves_at is None for dependency in found} == {True, False}


def test_columns_name_the_same_cause() -> None:
    """One agent on a proxy behind a sick auth, packed."""
    frame = prepare_frame(behind(SICK, {}), NOW)
    rows = empty_heartbeats(1)
    rows["auth"], rows["expires_at"], rows["ttl"], rows["desired"] = AUTH_2, NOW + 16, 20.0, 1
    memory = empty_memory(1)
    memory["flags"] = HAD_TUNNEL
    agents, proxies = np.zeros(1, np.uint32), np.full(1, PROXY_1, np.uint16)
    (row,) = classify_columns(rows, memory, agents, proxies, frame, NOW)
    assert (row["state"], row["cause"]) == (State.AT_RISK, AUTH_1)
