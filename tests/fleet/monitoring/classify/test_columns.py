"""The vectorised twin: the law that it says what the scalar says, and what it adds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.monitoring.classify import classify_columns, classify_in, evidence_of, prepare_frame
from fleet.monitoring.columns import NO_INSTANCE, REASON_BITS, RECOVERY_SHIFT, VERDICT
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State
from tests.fakes.fleets import NOW, RandomFleet, random_fleet


def compare(fleet: RandomFleet) -> set[tuple[State, Reason, Recovery]]:
    """Classify both ways, insist on equal answers, and say which were seen."""
    frame = prepare_frame(fleet.evidence, NOW)
    columns = (fleet.heartbeats, fleet.memory, fleet.tunnel_agents, fleet.tunnel_proxies)
    seen = set()
    for index, row in enumerate(classify_columns(*columns, frame, NOW)):
        agent = evidence_of(index, f"agent-{index}", *columns)
        verdict = classify_in(agent, frame)
        cause = int(row["cause"])
        vectorised = (
            State(int(row["state"])),
            Reason(int(row["packed"]) & REASON_BITS),
            "" if cause == NO_CAUSE else "backend/default" if cause == BACKEND_CAUSE else f"uuid-{cause}",
            Recovery(int(row["packed"]) >> RECOVERY_SHIFT),
            float(row["recovers_at"]) or None,
            float(row["strands_at"]) or None,
        )
        scalar = (
            verdict.state,
            verdict.reason,
            verdict.cause,
            verdict.recovery,
            verdict.recovers_at,
            verdict.strands_at,
        )
        assert vectorised == scalar, (agent, frame, verdict.sentence)
        seen.add((verdict.state, verdict.reason, verdict.recovery))
    return seen


@given(
    seed=st.integers(0, 2**32 - 1),
    agents=st.integers(0, 40),
    auths=st.integers(0, 4),
    proxies=st.integers(0, 5),
    calm=st.sampled_from([0.0, 0.5, 0.8, 1.0]),
)
@settings(max_examples=80, deadline=None)
def test_classify_columns_says_what_classify_says(
    seed: int, agents: int, auths: int, proxies: int, calm: float
) -> None:
    """On any fleet both agree on state, reason, cause and prediction of every agent."""
    compare(random_fleet(seed, agents, auths, proxies, calm))


def test_classify_columns_law_meets_every_state_and_reason() -> None:
    """The random fleets of the law reach every state, every reason and every recovery: the law is not empty."""
    seen: set[tuple[State, Reason, Recovery]] = set()
    for seed in range(40):
        seen |= compare(random_fleet(seed, 60, 3, 4, (0.0, 0.5, 0.8, 1.0)[seed % 4]))
    assert {state for state, _, _ in seen} == set(State)
    assert {reason for _, reason, _ in seen} == set(Reason)
    assert {recovery for _, _, recovery in seen} == set(Recovery)


def test_classify_columns_keeps_since_while_the_state_stays() -> None:
    """An unchanged state keeps its since; a changed one, and a new agent, begin now."""
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
def test_classify_columns_of_nobody(agents: int) -> None:
    """An empty fleet, and an agent of which nothing is known, are answered."""
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
    """A cause column may be filled from an instance column."""
    assert NO_CAUSE == NO_INSTANCE
