"""The vectorised classifier equals the scalar one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.monitoring.classify import classify_columns, classify_in, evidence_of, prepare_frame
from fleet.monitoring.columns import NO_INSTANCE, REASON_BITS, RECOVERY_SHIFT, VERDICT
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State
from tests.fakes.fleets import NOW, RandomFleet, random_fleet


def compare_classifiers(fleet: RandomFleet) -> set[tuple[State, Reason, Recovery]]:
    """Classify with both classifiers, assert equal verdicts, and return which occurred."""
    frame = prepare_frame(fleet.evidence, NOW)
    columns = (fleet.heartbeats, fleet.memory, fleet.tunnel_agents, fleet.tunnel_proxies)
    verdict_keys = set()
    for index, row in enumerate(classify_columns(*columns, frame, NOW)):
        agent = evidence_of(index, f"agent-{index}", *columns)
        verdict = classify_in(agent, frame)
        cause = int(row["cause"])
        column_verdict = (
            State(int(row["state"])),
            Reason(int(row["reason_and_recovery"]) & REASON_BITS),
            "" if cause == NO_CAUSE else "backend/default" if cause == BACKEND_CAUSE else f"uuid-{cause}",
            Recovery(int(row["reason_and_recovery"]) >> RECOVERY_SHIFT),
            float(row["recovers_at"]) or None,
            float(row["strands_at"]) or None,
        )
        scalar_verdict = (
            verdict.state,
            verdict.reason,
            verdict.cause,
            verdict.recovery,
            verdict.recovers_at,
            verdict.strands_at,
        )
        assert column_verdict == scalar_verdict, (agent, frame, verdict.sentence)
        verdict_keys.add((verdict.state, verdict.reason, verdict.recovery))
    return verdict_keys


@given(
    seed=st.integers(0, 2**32 - 1),
    agents=st.integers(0, 40),
    auths=st.integers(0, 4),
    proxies=st.integers(0, 5),
    healthy_share=st.sampled_from([0.0, 0.5, 0.8, 1.0]),
    has_heartbeats=st.booleans(),
    has_tunnels=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_classify_columns_equals_classify(
    seed: int,
    agents: int,
    auths: int,
    proxies: int,
    healthy_share: float,
    has_heartbeats: bool,
    has_tunnels: bool,
) -> None:
    """Both agree on state, reason, cause and prediction of every agent, also of a source without some evidence."""
    fleet = random_fleet(seed, agents, auths, proxies, healthy_share)
    evidence = replace(fleet.evidence, has_heartbeats=has_heartbeats, has_tunnels=has_tunnels)
    compare_classifiers(replace(fleet, evidence=evidence))


@pytest.mark.parametrize("has_heartbeats", [False, True])
def test_verdicts_that_need_missing_evidence_are_not_made(has_heartbeats: bool) -> None:
    """Neither an expiry without heartbeats nor a missing tunnel without tunnels is known; agents still have states."""
    verdict_keys: set[tuple[State, Reason, Recovery]] = set()
    for seed in range(40):
        fleet = random_fleet(seed, 60, 3, 4, (0.5, 0.8, 1.0)[seed % 3])
        evidence = replace(fleet.evidence, has_heartbeats=has_heartbeats, has_tunnels=not has_heartbeats)
        verdict_keys |= compare_classifiers(replace(fleet, evidence=evidence))
    states, reasons = {state for state, _, _ in verdict_keys}, {reason for _, reason, _ in verdict_keys}
    assert {State.HEALTHY, State.AT_RISK, State.STRANDED, State.OFFLINE} <= states
    assert not reasons & {Reason.TOO_FEW_TUNNELS, Reason.TOO_MANY_TUNNELS, Reason.DISAGREE, Reason.NO_TUNNEL}
    if has_heartbeats:
        assert State.NEVER not in states
    else:
        # RFD 226 does not describe the agents of a product without heartbeats: their recovery is not predicted.
        assert not reasons & {Reason.RESOURCE_EXPIRED, Reason.AUTH_UNHEALTHY, Reason.BACKEND_DOWN}
        recoveries = {recovery for state, _, recovery in verdict_keys if state is State.STRANDED}
        assert Recovery.BY_ITSELF not in recoveries


def test_without_heartbeats_and_tunnels_every_state_is_unknown() -> None:
    """Retired agents stay retired."""
    fleet = random_fleet(5, 60, 3, 4, 0.8)
    evidence = replace(fleet.evidence, has_heartbeats=False, has_tunnels=False)
    states = {state for state, _, _ in compare_classifiers(replace(fleet, evidence=evidence))}
    assert states <= {State.UNKNOWN, State.RETIRED}


def test_random_fleets_reach_every_state_and_reason() -> None:
    """And every recovery, so the property test is not vacuous."""
    verdict_keys: set[tuple[State, Reason, Recovery]] = set()
    for seed in range(40):
        verdict_keys |= compare_classifiers(random_fleet(seed, 60, 3, 4, (0.0, 0.5, 0.8, 1.0)[seed % 4]))
    assert {state for state, _, _ in verdict_keys} == set(State)
    assert {reason for _, reason, _ in verdict_keys} == set(Reason)
    assert {recovery for _, _, recovery in verdict_keys} == set(Recovery)


def test_since_is_kept_while_the_state_stays() -> None:
    """A changed state and a new agent start now."""
    fleet = random_fleet(1, 50, 2, 3, 0.8)
    frame = prepare_frame(fleet.evidence, NOW)
    columns = (fleet.heartbeats, fleet.memory, fleet.tunnel_agents, fleet.tunnel_proxies)
    previous = classify_columns(*columns, frame, NOW)[:40].copy()
    previous["since"] = NOW - 100
    previous["state"][7] = State.WORKING if previous["state"][7] != State.WORKING else State.HEALTHY
    since = classify_columns(*columns, frame, NOW, previous)["since"]
    assert since[7] == NOW
    assert (since[40:] == NOW).all()
    assert (np.delete(since[:40], 7) == NOW - 100).all()


@pytest.mark.parametrize("agents", [0, 1])
def test_classify_columns_of_empty_and_unknown_fleets(agents: int) -> None:
    """An empty fleet, and an agent without evidence."""
    fleet = random_fleet(3, agents, 0, 0, 1.0)
    verdicts = classify_columns(
        fleet.heartbeats,
        fleet.memory,
        fleet.tunnel_agents,
        fleet.tunnel_proxies,
        prepare_frame(fleet.evidence, NOW),
        NOW,
    )
    assert verdicts.dtype == VERDICT
    assert len(verdicts) == agents


def test_no_cause_is_no_instance() -> None:
    """A cause column can be filled from an instance column."""
    assert NO_CAUSE == NO_INSTANCE
