"""Incidents round by round: what an operator sees, and that nothing flickers in between."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fleet.monitoring.classify import classify_columns, prepare_frame, update_memory
from fleet.monitoring.columns import empty_heartbeats, empty_memory
from fleet.monitoring.evidence import FeedFreshness, FleetEvidence, ReconnectMode, Timing
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, PollAttempt, ServingStatus
from fleet.vocabulary.verdicts import State
from tests.fakes.small_fleet import AUTH_1, AUTH_2, NOW, PROXY_1, PROXY_2, UNPOLLED, instance

AUTHS, PROXIES = (AUTH_1, AUTH_2), (PROXY_1, PROXY_2)
#: Announce TTLs of instances and agents, seconds.
TTL, AGENT_TTL = 10.0, 20.0


class Story:
    """Two auths, two proxies, and one agent on auth-1 and proxy-1, polled every second by the real rules."""

    def __init__(self) -> None:
        self.now = NOW
        self.instances: dict[int, InstanceFacts] = {}
        self.feeds: dict[int, FeedFreshness] = {}
        self.presence = FeedFreshness()
        self.heartbeats = empty_heartbeats(1)
        self.memory = empty_memory(1)
        self.reported: dict[int, bool] = {}
        self.tunnel: int | None = PROXY_1
        self.alive = True
        #: How many tunnels its heartbeats claim.
        self.claimed = 1
        self.frozen: set[int] = set()
        self.cut: set[int] = set()
        #: Our own network is broken: the fleet lives on, and every poll fails.
        self.deaf = False
        #: The agent's resource in the backend, whether we read it or not.
        self.resource = empty_heartbeats(1)
        for index in (*AUTHS, *PROXIES):
            kind = InstanceKind.AUTH if index in AUTHS else InstanceKind.PROXY
            facts = instance(index, kind, f"{kind}-{index}", **UNPOLLED)
            self.instances[index] = replace(facts, listed_at=None, expires_at=None)

    def round(self) -> State:
        """Let a second pass, poll everything, and conclude."""
        self.now += 1
        for index, facts in self.instances.items():
            self.instances[index] = self._polled(facts)
        if self.alive and AUTH_1 not in self.cut | self.frozen and int(self.now) % 11 == 0:
            self.heartbeat()
        if all(self._fails(index) for index in AUTHS):
            self.presence = replace(self.presence, attempted_at=self.now)
        else:
            self.presence = FeedFreshness(self.now, self.now)
            self.heartbeats = self.resource.copy()
        for index in PROXIES:
            if self._fails(index):
                self.feeds[index] = replace(self.feeds[index], attempted_at=self.now)
            else:
                self.feeds[index] = FeedFreshness(self.now, self.now)
                self.reported[index] = self.tunnel == index
        return self.conclude()

    def rounds(self, count: int) -> list[State]:
        """Let some rounds pass and list each state once per change."""
        seen: list[State] = []
        for _ in range(count):
            state = self.round()
            if not seen or seen[-1] is not state:
                seen.append(state)
        return seen

    def conclude(self) -> State:
        """Remember and classify, as a round does."""
        timing = Timing(round_interval=1.0)
        fleet = FleetEvidence("default", self.instances, self.presence, self.feeds, timing=timing)
        frame = prepare_frame(fleet, self.now)
        rows = [proxy for proxy, has in self.reported.items() if has]
        tunnels = np.zeros(len(rows), np.uint32), np.array(rows, np.uint16)
        self.memory = update_memory(self.memory, self.heartbeats, *tunnels, self.now, frame).memory
        return State(
            int(classify_columns(self.heartbeats, self.memory, *tunnels, frame, self.now)["state"][0])
        )

    def _polled(self, facts: InstanceFacts) -> InstanceFacts:
        index = facts.index
        works = not self._fails(index)
        expires_at = self.now + 5 if works and index not in self.cut else facts.expires_at
        facts = replace(
            facts,
            listed_at=facts.listed_at if self.deaf else self.now,
            expires_at=expires_at,
            attempts=(PollAttempt(self.now, works), *facts.attempts[:1]),
        )
        if not works:
            return facts
        serving = ServingStatus.NOT_SERVING if index in self.cut else ServingStatus.SERVING
        return replace(facts, serving=serving, serving_at=self.now, readyz=200, readyz_at=self.now)

    def _fails(self, index: int) -> bool:
        return self.deaf or index in self.frozen

    def heartbeat(self) -> None:
        """Write the resource of the agent anew."""
        row = self.resource[0]
        row["expires_at"], row["ttl"], row["ttl_seen"] = self.now + AGENT_TTL, AGENT_TTL, TTL
        row["auth"], row["mode"], row["desired"] = AUTH_1, ReconnectMode.PICK_FIRST, 1
        row["claimed"] = self.claimed


def running() -> Story:
    """A story in which all has been well for a while."""
    story = Story()
    story.rounds(15)
    assert story.rounds(30) == [State.HEALTHY]
    return story


def test_start_with_an_empty_record_strands_nobody() -> None:
    """Before anything was read all is unknown; then the agent is healthy, and nothing in between is stranded."""
    story = Story()
    assert story.conclude() is State.UNKNOWN
    assert State.STRANDED not in story.rounds(30)
    assert story.round() is State.HEALTHY


def test_frozen_proxy_strands_at_the_second_failed_attempt_and_thawing_heals() -> None:
    """One failed attempt changes nothing, the second strands, the first answer heals."""
    story = running()
    story.frozen.add(PROXY_1)
    assert story.round() is State.HEALTHY
    assert story.rounds(60) == [State.STRANDED]
    story.frozen.clear()
    assert story.rounds(30) == [State.HEALTHY]


def test_agent_that_dials_past_a_frozen_proxy_is_healthy_and_stays_so() -> None:
    """After the move neither the dead proxy's last report nor its return disturbs the verdict."""
    story = running()
    story.frozen.add(PROXY_1)
    story.rounds(15)
    story.tunnel = PROXY_2
    assert story.rounds(30) == [State.HEALTHY]
    story.frozen.clear()
    assert story.rounds(30) == [State.HEALTHY]


def test_killed_agent_is_offline_at_once_and_never_stranded() -> None:
    """Its tunnel is closed and heartbeats stop; the resource that lives on proves nothing."""
    story = running()
    story.alive, story.tunnel = False, None
    assert story.rounds(60) == [State.OFFLINE]


def test_killed_agent_stays_offline_when_its_proxy_fails_later() -> None:
    """What breaks long after is not why it is gone."""
    story = running()
    story.alive, story.tunnel = False, None
    story.rounds(60)
    story.frozen.add(PROXY_1)
    assert story.rounds(60) == [State.OFFLINE]


def test_agent_without_a_tunnel_that_lives_is_stranded_with_its_next_heartbeat() -> None:
    """All instances are fine: only a heartbeat written after the loss tells it from a dead one."""
    story = running()
    story.tunnel = None
    assert story.rounds(30) == [State.OFFLINE, State.STRANDED]
    story.tunnel = PROXY_2
    assert story.rounds(30) == [State.HEALTHY]


def test_auth_cut_from_its_backend_puts_at_risk_then_strands_then_heals() -> None:
    """The clock is the resource's expiry; with pick_first only the auth's return helps."""
    story = running()
    story.cut.add(AUTH_1)
    assert story.rounds(60) == [State.AT_RISK, State.STRANDED]
    story.cut.clear()
    assert story.rounds(30)[-1] is State.HEALTHY


def test_everything_silent_is_unknown_and_strands_nobody() -> None:
    """When our network breaks nobody is stranded, before, during or after."""
    story = running()
    story.deaf = True
    assert story.rounds(60) == [State.HEALTHY, State.UNKNOWN]
    story.deaf = False
    assert story.rounds(30) == [State.HEALTHY]


def test_agent_that_closes_a_tunnel_stays_healthy_until_its_next_heartbeat() -> None:
    """Its proxies report one tunnel while its last heartbeat claims two, for some rounds."""
    story = running()
    story.resource["claimed"] = 2
    assert story.rounds(3) == [State.HEALTHY]
    story.resource["claimed"] = 1
    assert story.rounds(30) == [State.HEALTHY]


def test_agent_that_keeps_claiming_what_no_proxy_has_is_degraded() -> None:
    """No two views lie that far apart: one of them is wrong."""
    story = running()
    story.claimed = 2
    story.heartbeat()
    rounds = Timing(round_interval=1.0).disagreement_rounds
    assert [story.round() for _ in range(rounds)] == [State.HEALTHY] * (rounds - 1) + [State.DEGRADED]
