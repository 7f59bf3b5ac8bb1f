"""Proxies that are sick because of the auth they heartbeat through: cause and verdicts of their agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fleet.monitoring.classify import classify, classify_columns, instance_sentence, prepare_frame
from fleet.monitoring.classify.dependencies import Dependency
from fleet.monitoring.columns import HAD_TUNNEL, NO_INSTANCE, blank_heartbeats, blank_memory
from fleet.monitoring.evidence import FleetEvidence
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, Reason, Recovery, State
from tests.fakes.fleets import random_fleet
from tests.fakes.small_fleet import (
    AUTH_1,
    AUTH_2,
    DEREGISTERED,
    EXPIRED,
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

#: The facts of a proxy that heartbeats through auth-1.
VIA_AUTH_1: Facts = {"heartbeat_auth": "uuid-auth-1"}
#: Everything sick in the small fleet fell sick 2 s ago, and heartbeats of TTL 10 s come within 6 s.
MOVES_AT = NOW - 2 + 6 + 6


def since(at: float, facts: Facts) -> Facts:
    return {**facts, "sick_since": at}


@pytest.mark.parametrize(
    ("auth", "proxy", "cause"),
    [
        (UNHEALTHY, {**UNHEALTHY, **VIA_AUTH_1}, AUTH_1),
        (UNHEALTHY, {**EXPIRED, **VIA_AUTH_1}, AUTH_1),
        (SILENT, {**EXPIRED, **VIA_AUTH_1}, AUTH_1),
        (EXPIRED, {**UNHEALTHY, **VIA_AUTH_1}, AUTH_1),
        (DEREGISTERED, {**UNHEALTHY, **VIA_AUTH_1}, AUTH_1),
        # The auth is healthy, or it is another one.
        ({}, {**EXPIRED, **VIA_AUTH_1}, PROXY_1),
        (UNHEALTHY, {**EXPIRED, "heartbeat_auth": "uuid-auth-2"}, PROXY_1),
        (UNHEALTHY, {**EXPIRED, "heartbeat_auth": "uuid-of-nobody"}, PROXY_1),
        (UNHEALTHY, EXPIRED, PROXY_1),
        # A silent or deregistered proxy is sick for another reason; a healthy proxy has no cause.
        (UNHEALTHY, {**SILENT, **VIA_AUTH_1}, PROXY_1),
        (UNHEALTHY, {**DEREGISTERED, **VIA_AUTH_1}, PROXY_1),
        (UNHEALTHY, VIA_AUTH_1, PROXY_1),
        # Sick long before its auth, and within the margin of one heartbeat interval or the staleness limit.
        (UNHEALTHY, since(NOW - 12.5, {**UNHEALTHY, **VIA_AUTH_1}), PROXY_1),
        (UNHEALTHY, since(NOW - 11.5, {**UNHEALTHY, **VIA_AUTH_1}), AUTH_1),
        ({**UNHEALTHY, "ttl": 600.0}, since(NOW - 300, {**UNHEALTHY, **VIA_AUTH_1}), AUTH_1),
        (since(NOW - 9000, UNHEALTHY), {**UNHEALTHY, **VIA_AUTH_1}, AUTH_1),
    ],
)
def test_cause_of_a_sick_proxy(auth: Facts, proxy: Facts, cause: int) -> None:
    """The auth it heartbeats through, if that auth failed first; otherwise the proxy itself."""
    frame = prepare_frame(fleet(auth_1=auth, proxy_1=proxy), NOW)
    assert frame.cause_of(PROXY_1) == cause
    assert frame.cause_of(PROXY_2) == PROXY_2
    assert frame.tables.causes[[AUTH_1, PROXY_1, PROXY_2, 77, BACKEND_CAUSE, NO_INSTANCE]].tolist() == [
        *(AUTH_1, cause, PROXY_2, 77, BACKEND_CAUSE, NO_INSTANCE)
    ]


def test_backend_is_the_cause_when_all_auths_are_sick() -> None:
    """No proxy can move to another auth."""
    frame = prepare_frame(fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY, proxy_1={**UNHEALTHY, **VIA_AUTH_1}), NOW)
    assert frame.dependencies == {PROXY_1: Dependency(BACKEND_CAUSE, None)}
    assert frame.cause_clause(PROXY_1) == "all auths failed together"


@pytest.mark.parametrize(("ttl", "moves_at"), [(10.0, MOVES_AT), (600.0, NOW - 2 + 60 + 360)])
def test_proxy_moves_to_another_auth_automatically(ttl: float, moves_at: float) -> None:
    """Within a minute plus a heartbeat interval; without another auth it stays sick."""
    proxy = {**UNHEALTHY, **VIA_AUTH_1, "ttl": ttl}
    dependency = prepare_frame(fleet(auth_1=UNHEALTHY, proxy_1=proxy), NOW).dependencies[PROXY_1]
    assert dependency == Dependency(AUTH_1, moves_at)
    silent_auth = since(NOW - 9000, SILENT)
    assert prepare_frame(fleet(auth_1=UNHEALTHY, auth_2=silent_auth, proxy_1=proxy), NOW).dependencies == {
        PROXY_1: Dependency(AUTH_1, None)
    }


def fleet_behind_auth_1(proxy_1: Facts, proxy_2: Facts, auth_2: Facts | None = None) -> FleetEvidence:
    """Return the small fleet with a sick auth-1 and these proxies."""
    return fleet(auth_1=UNHEALTHY, auth_2=auth_2 or {}, proxy_1=proxy_1, proxy_2=proxy_2)


HEARTBEAT_BY_AUTH_2 = heartbeat(auth=AUTH_2)
SICK: Facts = {**UNHEALTHY, **VIA_AUTH_1}


def test_agents_on_a_proxy_behind_a_sick_auth() -> None:
    """The reason is the state of the proxy, the cause is the auth, and the sentence contains both."""
    verdict = classify(
        agent(heartbeat=HEARTBEAT_BY_AUTH_2, last_auth=AUTH_2), fleet_behind_auth_1(SICK, {}), NOW
    )
    assert (verdict.state, verdict.reason, verdict.cause) == (
        State.AT_RISK,
        Reason.PROXY_UNHEALTHY,
        "uuid-auth-1",
    )
    assert (verdict.recovery, verdict.recovers_at) == (Recovery.BY_ITSELF, MOVES_AT)
    assert verdict.sentence == (
        "No proxy that the agent is connected to is OK: proxy-1 cannot send heartbeats because its auth "
        "auth-1 lost its backend. The agent recovers automatically."
    )


def test_agents_without_another_proxy_recover_with_the_auth() -> None:
    """When the predicted move of the proxies is overdue, the recovery depends on the auth."""
    sick_for_a_minute = since(NOW - 60, SICK)
    evidence = fleet(auth_1=since(NOW - 60, UNHEALTHY), proxy_1=sick_for_a_minute, proxy_2=sick_for_a_minute)
    verdict = classify(agent(heartbeat=HEARTBEAT_BY_AUTH_2, last_auth=AUTH_2), evidence, NOW)
    assert (verdict.cause, verdict.recovery) == ("uuid-auth-1", Recovery.ONLY_IF_CAUSE_RECOVERS)
    assert verdict.sentence.endswith(
        "The agent recovers only when auth-1 recovers: no other instance is available."
    )


def test_agents_without_another_proxy_recover_with_the_backend() -> None:
    """If all auths are sick, the sentence names the backend."""
    evidence = fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY, proxy_1=SICK, proxy_2=SICK)
    stranded_agent = agent(heartbeat=None, last_auth=None, tunnels=(), lost_at=NOW - 2)
    verdict = classify(stranded_agent, evidence, NOW)
    assert (verdict.state, verdict.cause) == (State.STRANDED, "backend/default")
    assert verdict.sentence.endswith("The agent recovers only when the backend recovers.")
    assert "because all auths failed together" in verdict.sentence


@pytest.mark.parametrize(
    ("proxy", "sentence"),
    [
        (
            SICK,
            (
                "proxy-1 responds, but reports NOT_SERVING and /readyz returns 503: its auth auth-1 "
                "lost its backend."
            ),
        ),
        (
            {**EXPIRED, **VIA_AUTH_1},
            "proxy-1 did not renew its heartbeat in time: its auth auth-1 lost its backend.",
        ),
    ],
)
def test_sentence_of_the_proxy(proxy: Facts, sentence: str) -> None:
    """With its state and the cause."""
    frame = prepare_frame(fleet_behind_auth_1(proxy, {}), NOW)
    condition = frame.conditions[PROXY_1]
    assert condition.state is not InstanceState.OK
    assert instance_sentence(condition.facts, condition.state, NOW, frame.cause_clause(PROXY_1)) == sentence


def test_random_fleets_have_dependencies() -> None:
    """So the comparison of the classifiers covers proxies behind sick auths."""
    dependencies = [
        dependency
        for seed in range(60)
        for dependency in prepare_frame(
            random_fleet(seed, 0, 3, 4, 0.5).evidence, 1_000_000.0
        ).dependencies.values()
    ]
    assert {dependency.cause == BACKEND_CAUSE for dependency in dependencies} == {True, False}
    assert {dependency.moves_at is None for dependency in dependencies} == {True, False}


def test_columns_name_the_same_cause() -> None:
    """One agent on a proxy behind a sick auth."""
    frame = prepare_frame(fleet_behind_auth_1(SICK, {}), NOW)
    rows = blank_heartbeats(1)
    rows["auth"], rows["expires_at"], rows["ttl"], rows["desired_count"] = AUTH_2, NOW + 16, 20.0, 1
    memory = blank_memory(1)
    memory["flags"] = HAD_TUNNEL
    agents, proxies = np.zeros(1, np.uint32), np.full(1, PROXY_1, np.uint16)
    (row,) = classify_columns(rows, memory, agents, proxies, frame, NOW)
    assert (row["state"], row["cause"]) == (State.AT_RISK, AUTH_1)
