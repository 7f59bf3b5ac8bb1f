"""What must hold of every verdict, walked over all combinations of the discrete evidence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from fleet.monitoring.classify import FleetFrame, classify_in, prepare_frame
from fleet.monitoring.classify.situation import ResourceState, read_situation
from fleet.monitoring.evidence import AgentEvidence, FeedFreshness, ReconnectMode
from fleet.vocabulary.instances import PollAttempt
from fleet.vocabulary.verdicts import Reason, Recovery, State, Verdict
from tests.fakes.small_fleet import (
    AUTH_1,
    EXPIRED,
    GONE,
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
    "gone": GONE,
    "unpolled": UNPOLLED,
    "once": {"attempts": (PollAttempt(NOW - 0.2, False, "timeout"), PollAttempt(NOW - 1.2, True))},
}
ONE = ("ok", "silent", "unhealthy", "expired", "gone", "unpolled")
OTHER_AUTH = ("ok", "unhealthy")
OTHER_PROXY = ("ok", "silent")
FEEDS = {
    "answered": FeedFreshness(NOW, NOW),
    "failing": FeedFreshness(NOW, NOW - 60),
    "stale": FeedFreshness(NOW - 60, NOW - 60),
    "never": FeedFreshness(),
}
#: auth-1, auth-2, proxy-1, proxy-2, the presence feed, proxy-1's tunnel feed.
Where = tuple[str, str, str, str, str, str]
WHERE: list[Where] = list(
    itertools.product(ONE, OTHER_AUTH, ONE, OTHER_PROXY, FEEDS, ("answered", "failing", "stale"))
)

HEARTBEATS = {
    "none": None,
    "pick-first": heartbeat(),
    "wants two": heartbeat(desired=2, claimed=2),
    "reconnect": heartbeat(mode=ReconnectMode.RECONNECT, health_check=True, via_proxy=PROXY_2),
    "expired": heartbeat(expires_at=NOW - 2, mode=ReconnectMode.UNKNOWN),
}
TUNNELS = {"no tunnel": (), "one tunnel": (PROXY_1,), "two tunnels": (PROXY_1, PROXY_2)}
MEMORIES = {
    "enrolled": {"last_proxies": (), "last_auth": None, "had_tunnel": False},
    "remembered": {},
    "lost just now": {"lost_at": NOW - 0.5},
    "at odds for long": {"disagreement": 63},
}
Who = tuple[str, str, str]
WHO: list[Who] = list(itertools.product(HEARTBEATS, TUNNELS, MEMORIES))

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
def frame_of(where: Where) -> FleetFrame:
    """Prepare the frame of one combination of instances and feeds."""
    auth_1, auth_2, proxy_1, proxy_2, presence, feed = where
    return prepare_frame(
        fleet(
            auth_1=FACTS[auth_1],
            auth_2=FACTS[auth_2],
            proxy_1=FACTS[proxy_1],
            proxy_2=FACTS[proxy_2],
            presence=FEEDS[presence],
            tunnels={PROXY_1: FEEDS[feed], PROXY_2: FEEDS["answered"]},
        ),
        NOW,
    )


def agent_of(who: Who) -> AgentEvidence:
    """Make the agent of one combination of evidence."""
    beat, tunnels, memory = who
    return agent(heartbeat=HEARTBEATS[beat], tunnels=TUNNELS[tunnels], **MEMORIES[memory])


@cache
def verdicts() -> dict[tuple[Where, Who], Verdict]:
    """Conclude every combination once."""
    agents = {who: agent_of(who) for who in WHO}
    return {(where, who): classify_in(agents[who], frame_of(where)) for where in WHERE for who in WHO}


def cases() -> Iterator[tuple[FleetFrame, AgentEvidence, Verdict]]:
    """Walk all combinations with their verdicts."""
    agents = {who: agent_of(who) for who in WHO}
    for (where, who), verdict in verdicts().items():
        yield frame_of(where), agents[who], verdict


def test_classify_combinations_reach_every_state_but_those_asked_for() -> None:
    """The combinations are not idle: all states but retired and working (an operator's, and ours) come up."""
    states = {verdict.state for verdict in verdicts().values()}
    assert set(State) - states <= {State.RETIRED, State.WORKING}


def test_classify_is_deterministic() -> None:
    """The same evidence gives the same verdict."""
    for frame, evidence, verdict in itertools.islice(cases(), 0, None, 17):
        assert classify_in(evidence, frame) == verdict


def test_classify_every_verdict_is_well_formed() -> None:
    """Predictions lie ahead and go with the right states, causes exist and ail, and a sentence explains."""
    for frame, evidence, verdict in cases():
        case = (evidence, verdict)
        assert (verdict.recovers_at is not None) == (verdict.recovery is Recovery.BY_ITSELF), case
        assert verdict.recovers_at is None or verdict.recovers_at >= NOW, case
        assert verdict.strands_at is None or (verdict.state is State.AT_RISK and verdict.strands_at >= NOW), (
            case
        )
        calm = (State.HEALTHY, State.RETIRED, State.NEVER, State.EXCESS)
        assert (verdict.recovery is Recovery.NOT_NEEDED) == (verdict.state in calm), case
        assert verdict.recovery is not Recovery.ONLY_IF_CAUSE_RECOVERS or verdict.cause, case
        assert verdict.sentence.endswith("."), case
        if verdict.cause:
            ailing = {s.facts.id for s in frame.conditions.values() if s.sick} | {"backend/default"}
            assert verdict.cause in ailing, case
            assert (verdict.cause == "backend/default") == (verdict.reason is Reason.BACKEND_DOWN), case


def test_classify_healthy_means_reachable_over_well_instances() -> None:
    """Healthy: a live tunnel on a proxy that is not sick, an unexpired resource, an auth that is not sick."""
    for frame, evidence, verdict in cases():
        if verdict.state is not State.HEALTHY:
            continue
        situation = read_situation(evidence, frame)
        assert situation.is_reachable
        assert not all(situation.is_sick(index) for index in situation.live)
        assert not situation.is_sick(situation.auth)


def test_classify_reachable_is_never_unknown_nor_stranded() -> None:
    """What something fresh shows to be reachable is neither unknown, stranded nor offline."""
    lost = {State.UNKNOWN, State.STRANDED, State.OFFLINE, State.NEVER}
    for frame, evidence, verdict in cases():
        if read_situation(evidence, frame).is_reachable and not frame.unreachable:
            assert verdict.state not in lost, (evidence, verdict)


def test_classify_stranded_needs_life_or_a_culprit() -> None:
    """Stranded: unreachable for sure, and a sign of life, or something it used is sick."""
    for frame, evidence, verdict in cases():
        if verdict.state is not State.STRANDED:
            continue
        s = read_situation(evidence, frame)
        assert not s.is_reachable
        used = [*s.recent_proxies, *(index for index in (s.auth, s.via_proxy) if index is not None)]
        assert s.live or s.has_live_heartbeat or any(s.is_sick(index) for index in used), (evidence, verdict)


def test_classify_offline_blames_nobody_and_misses_nothing() -> None:
    """Offline: no live tunnel, no heartbeat, and nothing it used is unknown or was sick when it was lost."""
    for frame, evidence, verdict in cases():
        if verdict.state is not State.OFFLINE:
            continue
        s = read_situation(evidence, frame)
        assert not s.live
        assert not s.has_live_heartbeat
        assert s.blamed_auth is None
        assert not s.blamed_proxies
        assert s.resource is not ResourceState.UNCLEAR


def test_classify_nothing_fresh_is_unknown() -> None:
    """With every source stale no agent gets any other verdict."""
    for (where, who), verdict in verdicts().items():
        on_proxy_2 = PROXY_2 in TUNNELS[who[1]]
        if where[4] in ("stale", "never") and where[5] == "stale" and not on_proxy_2:
            assert verdict.state is State.UNKNOWN, (where, who, verdict)


@pytest.mark.parametrize("instance", [0, 2])
def test_classify_a_sicker_instance_never_improves_a_verdict(instance: int) -> None:
    """An instance that falls sick makes no verdict better. Unknown is no verdict to compare with."""
    for (where, who), verdict in verdicts().items():
        if where[instance] != "ok" or verdict.state not in BADNESS:
            continue
        for sick in ("silent", "unhealthy", "expired", "gone"):
            worse = verdicts()[_with(where, instance, sick), who]
            # Who deregistered is no proxy an agent lacks a tunnel to.
            let_go = sick == "gone" and verdict.reason is Reason.TOO_FEW_TUNNELS
            if worse.state in BADNESS and not let_go:
                assert BADNESS[worse.state] >= BADNESS[verdict.state], (where, who, sick, verdict, worse)


def test_classify_losing_all_tunnels_never_improves_a_verdict() -> None:
    """Nobody is better off without tunnels."""
    for (where, who), verdict in verdicts().items():
        if who[1] == "no tunnel" or verdict.state not in BADNESS:
            continue
        worse = verdicts()[where, (who[0], "no tunnel", who[2])]
        if worse.state in BADNESS:
            lost, had = BADNESS[worse.state], BADNESS[verdict.state]
            # An agent that only its tunnel showed to be alive is offline without it.
            assert lost >= had or (verdict.state, worse.state) == (State.STRANDED, State.OFFLINE), (
                where,
                who,
            )


@pytest.mark.parametrize("instance", [0, 2])
def test_classify_one_failed_poll_changes_no_verdict(instance: int) -> None:
    """While the others answer, a single failed attempt at an instance leaves every verdict as it was."""
    for where in WHERE:
        if where[:4] != ("ok", "ok", "ok", "ok"):
            continue
        once = frame_of(_with(where, instance, "once"))
        for who in WHO:
            assert classify_in(agent_of(who), once) == verdicts()[where, who], (where, who)


def test_classify_retired_and_blind_win() -> None:
    """Retired wins over all; blind over all but retired."""
    for where in WHERE[:: len(WHERE) // 97]:
        blind = replace(frame_of(where), blind=True)
        for who in WHO:
            retired = replace(agent_of(who), retired=True)
            assert classify_in(retired, blind).state is State.RETIRED
            assert classify_in(agent_of(who), blind).state is State.UNKNOWN


def test_classify_auth_beside_the_agents_own_changes_only_its_outlook() -> None:
    """Another auth falling sick leaves state and cause alone, unless with it all are."""
    for (where, who), verdict in verdicts().items():
        if where[0] != "ok" or where[1] != "ok" or agent_of(who).last_auth not in (AUTH_1, None):
            continue
        other = verdicts()[_with(where, 1, "unhealthy"), who]
        assert (other.state, other.reason, other.cause) == (verdict.state, verdict.reason, verdict.cause)


def _with(where: Where, place: int, state: str) -> Where:
    parts = list(where)
    parts[place] = state
    return parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
