"""Invariants of verdicts, tested for all combinations of discrete evidence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from fleet.monitoring.classify import FleetFrame, classify_in, explain_recorded, prepare_frame
from fleet.monitoring.classify.situation import ResourceState, read_situation
from fleet.monitoring.evidence import AgentEvidence, FeedFreshness, ReconnectMode
from fleet.vocabulary.instances import PollAttempt
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State, Verdict
from tests.fakes.small_fleet import (
    AUTH_1,
    DEREGISTERED,
    EXPIRED,
    NOW,
    OK,
    PROXY_1,
    PROXY_2,
    SILENT,
    UNHEALTHY,
    UNPOLLED,
    agent,
    fleet,
    heartbeat,
)

FACTS = {
    "ok": OK,
    "silent": SILENT,
    "unhealthy": UNHEALTHY,
    "expired": EXPIRED,
    "gone": DEREGISTERED,
    "unpolled": UNPOLLED,
    "once": {"attempts": (PollAttempt(NOW - 0.2, False, "timeout"), PollAttempt(NOW - 1.2, True))},
}
INSTANCE_STATES = ("ok", "silent", "unhealthy", "expired", "gone", "unpolled")
OTHER_AUTH = ("ok", "unhealthy")
OTHER_PROXY = ("ok", "silent")
FEEDS = {
    "answered": FeedFreshness(NOW, NOW),
    "failing": FeedFreshness(NOW, NOW - 60),
    "stale": FeedFreshness(NOW - 60, NOW - 60),
    "never": FeedFreshness(),
}
#: auth-1, auth-2, proxy-1, proxy-2, the presence feed, proxy-1's tunnel feed.
FleetCase = tuple[str, str, str, str, str, str]
FLEET_CASES: list[FleetCase] = list(
    itertools.product(
        INSTANCE_STATES, OTHER_AUTH, INSTANCE_STATES, OTHER_PROXY, FEEDS, ("answered", "failing", "stale")
    )
)

HEARTBEATS = {
    "none": None,
    "pick-first": heartbeat(),
    "wants two": heartbeat(desired_count=2, claimed_count=2),
    "reconnect": heartbeat(mode=ReconnectMode.RECONNECT, health_check=True, via_proxy=PROXY_2),
    "expired": heartbeat(expires_at=NOW - 2, mode=ReconnectMode.UNKNOWN),
}
TUNNELS = {"no tunnel": (), "one tunnel": (PROXY_1,), "two tunnels": (PROXY_1, PROXY_2)}
MEMORIES = {
    "enrolled": {"last_proxies": (), "last_auth": None, "had_tunnel": False},
    "remembered": {},
    "lost just now": {"lost_at": NOW - 0.5},
    "at odds for long": {"disagreement_rounds": 63},
}
AgentCase = tuple[str, str, str]
AGENT_CASES: list[AgentCase] = list(itertools.product(HEARTBEATS, TUNNELS, MEMORIES))

#: How bad a verdict is; unknown says nothing.
BADNESS = {
    State.HEALTHY: 0,
    State.EXCESS: 0,
    State.DEGRADED: 1,
    State.AT_RISK: 2,
    State.OFFLINE: 3,
    State.STRANDED: 4,
}


@cache
def frame_of(fleet_case: FleetCase) -> FleetFrame:
    """Prepare the frame of one combination of instances and feeds."""
    auth_1, auth_2, proxy_1, proxy_2, presence, feed = fleet_case
    return prepare_frame(
        fleet(
            auth_1=FACTS[auth_1],
            auth_2=FACTS[auth_2],
            proxy_1=FACTS[proxy_1],
            proxy_2=FACTS[proxy_2],
            presence_freshness=FEEDS[presence],
            tunnel_freshness={PROXY_1: FEEDS[feed], PROXY_2: FEEDS["answered"]},
        ),
        NOW,
    )


def agent_of(agent_case: AgentCase) -> AgentEvidence:
    """Make the agent of one combination of evidence."""
    beat, tunnels, memory = agent_case
    return agent(heartbeat=HEARTBEATS[beat], tunnels=TUNNELS[tunnels], **MEMORIES[memory])


@cache
def classify_all_cases() -> dict[tuple[FleetCase, AgentCase], Verdict]:
    """Classify every combination once."""
    agents = {agent_case: agent_of(agent_case) for agent_case in AGENT_CASES}
    return {
        (fleet_case, agent_case): classify_in(agents[agent_case], frame_of(fleet_case))
        for fleet_case in FLEET_CASES
        for agent_case in AGENT_CASES
    }


def iterate_cases() -> Iterator[tuple[FleetFrame, AgentEvidence, Verdict]]:
    """Yield all combinations with their verdicts."""
    agents = {agent_case: agent_of(agent_case) for agent_case in AGENT_CASES}
    for (fleet_case, agent_case), verdict in classify_all_cases().items():
        yield frame_of(fleet_case), agents[agent_case], verdict


def test_cases_reach_every_state_except_retired_and_reconnecting() -> None:
    """The combinations are not idle: all states but retired and working (an operator's, and ours) come up."""
    states = {verdict.state for verdict in classify_all_cases().values()}
    assert set(State) - states <= {State.RETIRED, State.WORKING}


def test_classify_is_deterministic() -> None:
    """The same evidence gives the same verdict."""
    for frame, evidence, verdict in itertools.islice(iterate_cases(), 0, None, 17):
        assert classify_in(evidence, frame) == verdict


def test_a_recorded_verdict_is_explained_as_it_was() -> None:
    """From state, reason, recorded cause and recovery: what the history keeps of a verdict."""
    for frame, evidence, verdict in itertools.islice(iterate_cases(), 0, None, 5):
        index_by_id = {condition.facts.id: index for index, condition in frame.conditions.items()}
        cause = (
            BACKEND_CAUSE
            if verdict.cause.startswith("backend/")
            else index_by_id.get(verdict.cause, NO_CAUSE)
        )
        sentences = explain_recorded(evidence, frame, verdict.state, verdict.reason, cause, verdict.recovery)
        assert sentences == verdict.sentences, (evidence, verdict)


def test_every_verdict_is_well_formed() -> None:
    """Predictions lie ahead and go with the right states, causes exist and ail, and a sentence explains."""
    for frame, evidence, verdict in iterate_cases():
        case = (evidence, verdict)
        assert (verdict.recovers_at is not None) == (verdict.recovery is Recovery.BY_ITSELF), case
        assert verdict.recovers_at is None or verdict.recovers_at >= NOW, case
        assert verdict.strands_at is None or (verdict.state is State.AT_RISK and verdict.strands_at >= NOW), (
            case
        )
        states_without_recovery = (State.HEALTHY, State.RETIRED, State.NEVER, State.EXCESS)
        assert (verdict.recovery is Recovery.NOT_NEEDED) == (verdict.state in states_without_recovery), case
        assert verdict.recovery is not Recovery.ONLY_IF_CAUSE_RECOVERS or verdict.cause, case
        assert verdict.sentence.endswith("."), case
        if verdict.cause:
            sick_ids = {s.facts.id for s in frame.conditions.values() if s.is_sick} | {"backend/default"}
            assert verdict.cause in sick_ids, case
            assert (verdict.cause == "backend/default") == (verdict.reason is Reason.BACKEND_DOWN), case


def test_healthy_agent_is_reachable_through_healthy_instances() -> None:
    """Healthy: a live tunnel on a proxy that is not sick, an unexpired resource, an auth that is not sick."""
    for frame, evidence, verdict in iterate_cases():
        if verdict.state is not State.HEALTHY:
            continue
        situation = read_situation(evidence, frame)
        assert situation.is_reachable
        assert not all(situation.is_sick(index) for index in situation.live_tunnels)
        assert not situation.is_sick(situation.auth)


def test_reachable_agent_is_never_unknown_stranded_or_offline() -> None:
    """What something fresh shows to be reachable is neither unknown, stranded nor offline."""
    unreachable_states = {State.UNKNOWN, State.STRANDED, State.OFFLINE, State.NEVER}
    for frame, evidence, verdict in iterate_cases():
        if read_situation(evidence, frame).is_reachable and not frame.cluster_unreachable:
            assert verdict.state not in unreachable_states, (evidence, verdict)


def test_stranded_agent_is_alive_or_has_a_sick_instance() -> None:
    """Stranded: unreachable for sure, and a sign of life, or something it used is sick."""
    for frame, evidence, verdict in iterate_cases():
        if verdict.state is not State.STRANDED:
            continue
        s = read_situation(evidence, frame)
        assert not s.is_reachable
        used_instances = [*s.recent_proxies, *(index for index in (s.auth, s.via_proxy) if index is not None)]
        assert s.live_tunnels or s.has_live_heartbeat or any(s.is_sick(index) for index in used_instances), (
            evidence,
            verdict,
        )


def test_offline_agent_has_no_sick_or_unknown_instance() -> None:
    """Offline: no live tunnel, no heartbeat, and nothing it used is unknown or was sick when it was lost."""
    for frame, evidence, verdict in iterate_cases():
        if verdict.state is not State.OFFLINE:
            continue
        s = read_situation(evidence, frame)
        assert not s.live_tunnels
        assert not s.has_live_heartbeat
        assert s.blamed_carrier is None
        assert not s.blamed_proxies
        assert s.resource is not ResourceState.UNCLEAR


def test_stale_sources_make_agents_unknown() -> None:
    """With every source stale no agent gets any other verdict."""
    for (fleet_case, agent_case), verdict in classify_all_cases().items():
        on_proxy_2 = PROXY_2 in TUNNELS[agent_case[1]]
        if fleet_case[4] in ("stale", "never") and fleet_case[5] == "stale" and not on_proxy_2:
            assert verdict.state is State.UNKNOWN, (fleet_case, agent_case, verdict)


@pytest.mark.parametrize("instance", [0, 2])
def test_sicker_instance_never_improves_a_verdict(instance: int) -> None:
    """An instance that falls sick makes no verdict better. Unknown is no verdict to compare with."""
    for (fleet_case, agent_case), verdict in classify_all_cases().items():
        if fleet_case[instance] != "ok" or verdict.state not in BADNESS:
            continue
        for sick in ("silent", "unhealthy", "expired", "gone"):
            worse = classify_all_cases()[_with(fleet_case, instance, sick), agent_case]
            # Who deregistered is no proxy an agent lacks a tunnel to.
            is_deregistered_proxy = sick == "gone" and verdict.reason is Reason.TOO_FEW_TUNNELS
            if worse.state in BADNESS and not is_deregistered_proxy:
                assert BADNESS[worse.state] >= BADNESS[verdict.state], (
                    fleet_case,
                    agent_case,
                    sick,
                    verdict,
                    worse,
                )


def test_loss_of_all_tunnels_never_improves_a_verdict() -> None:
    """An agent without tunnels never has a better verdict."""
    for (fleet_case, agent_case), verdict in classify_all_cases().items():
        if agent_case[1] == "no tunnel" or verdict.state not in BADNESS:
            continue
        worse = classify_all_cases()[fleet_case, (agent_case[0], "no tunnel", agent_case[2])]
        if worse.state in BADNESS:
            badness_without_tunnels, badness = BADNESS[worse.state], BADNESS[verdict.state]
            # An agent that only its tunnel showed to be alive is offline without it.
            assert badness_without_tunnels >= badness or (verdict.state, worse.state) == (
                State.STRANDED,
                State.OFFLINE,
            ), (
                fleet_case,
                agent_case,
            )


@pytest.mark.parametrize("instance", [0, 2])
def test_single_failed_poll_changes_no_verdict(instance: int) -> None:
    """While the others answer, a single failed attempt at an instance leaves every verdict as it was."""
    for fleet_case in FLEET_CASES:
        if fleet_case[:4] != ("ok", "ok", "ok", "ok"):
            continue
        frame = frame_of(_with(fleet_case, instance, "once"))
        for agent_case in AGENT_CASES:
            assert classify_in(agent_of(agent_case), frame) == classify_all_cases()[fleet_case, agent_case], (
                fleet_case,
                agent_case,
            )


def test_retired_and_blind_take_precedence() -> None:
    """Retired wins over all; blind over all but retired."""
    for fleet_case in FLEET_CASES[:: len(FLEET_CASES) // 97]:
        blind_frame = replace(frame_of(fleet_case), blind=True)
        for agent_case in AGENT_CASES:
            retired_agent = replace(agent_of(agent_case), is_retired=True)
            assert classify_in(retired_agent, blind_frame).state is State.RETIRED
            assert classify_in(agent_of(agent_case), blind_frame).state is State.UNKNOWN


def test_another_sick_auth_does_not_change_state_and_cause() -> None:
    """Another auth falling sick leaves state and cause alone, unless with it all are."""
    for (fleet_case, agent_case), verdict in classify_all_cases().items():
        if (
            fleet_case[0] != "ok"
            or fleet_case[1] != "ok"
            or agent_of(agent_case).last_auth not in (AUTH_1, None)
        ):
            continue
        other_verdict = classify_all_cases()[_with(fleet_case, 1, "unhealthy"), agent_case]
        assert (other_verdict.state, other_verdict.reason, other_verdict.cause) == (
            verdict.state,
            verdict.reason,
            verdict.cause,
        )


def _with(fleet_case: FleetCase, position: int, state: str) -> FleetCase:
    parts = list(fleet_case)
    parts[position] = state
    return parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
