"""Incidents poll by poll: the states that an operator sees, without flickering."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fleet.monitoring.classify import classify_columns, prepare_frame, update_memory
from fleet.monitoring.columns import blank_heartbeats, blank_memory
from fleet.monitoring.evidence import FeedFreshness, FleetEvidence, ReconnectMode, Timing
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, PollAttempt, ServingStatus
from fleet.vocabulary.verdicts import State
from tests.fakes.small_fleet import AUTH_1, AUTH_2, NOW, PROXY_1, PROXY_2, UNPOLLED, instance

AUTHS, PROXIES = (AUTH_1, AUTH_2), (PROXY_1, PROXY_2)
#: Announce TTLs of instances and agents, seconds.
TTL, AGENT_TTL = 10.0, 20.0


class FleetTimeline:
    """Two auths, two proxies and one agent on auth-1 and proxy-1, polled every second."""

    def __init__(self) -> None:
        self.now = NOW
        self.instances: dict[int, InstanceFacts] = {}
        self.feeds: dict[int, FeedFreshness] = {}
        self.presence = FeedFreshness()
        self.heartbeats = blank_heartbeats(1)
        self.memory = blank_memory(1)
        self.tunnel_by_proxy: dict[int, bool] = {}
        self.tunnel: int | None = PROXY_1
        self.is_agent_alive = True
        #: How many tunnels its heartbeats claim.
        self.claimed_count = 1
        self.frozen_instances: set[int] = set()
        self.cut_off_instances: set[int] = set()
        #: The network of the console is down: the fleet works, but every poll fails.
        self.is_network_down = False
        #: The agent's resource in the backend, whether polls read it or not.
        self.resource = blank_heartbeats(1)
        for index in (*AUTHS, *PROXIES):
            kind = InstanceKind.AUTH if index in AUTHS else InstanceKind.PROXY
            facts = instance(index, kind, f"{kind}-{index}", **UNPOLLED)
            self.instances[index] = replace(facts, listed_at=None, expires_at=None)

    def round(self) -> State:
        """Advance by one second, poll all instances and classify."""
        self.now += 1
        for index, facts in self.instances.items():
            self.instances[index] = self._polled(facts)
        if (
            self.is_agent_alive
            and AUTH_1 not in self.cut_off_instances | self.frozen_instances
            and int(self.now) % 11 == 0
        ):
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
                self.tunnel_by_proxy[index] = self.tunnel == index
        return self.conclude()

    def run_rounds(self, count: int) -> list[State]:
        """Run some polls and return each state once per change."""
        states: list[State] = []
        for _ in range(count):
            state = self.round()
            if not states or states[-1] is not state:
                states.append(state)
        return states

    def conclude(self) -> State:
        """Update the memory and classify the agent."""
        timing = Timing(round_interval=1.0)
        fleet = FleetEvidence("default", self.instances, self.presence, self.feeds, timing=timing)
        frame = prepare_frame(fleet, self.now)
        rows = [proxy for proxy, has_tunnel in self.tunnel_by_proxy.items() if has_tunnel]
        tunnels = np.zeros(len(rows), np.uint32), np.array(rows, np.uint16)
        self.memory = update_memory(self.memory, self.heartbeats, *tunnels, self.now, frame).memory
        return State(
            int(classify_columns(self.heartbeats, self.memory, *tunnels, frame, self.now)["state"][0])
        )

    def _polled(self, facts: InstanceFacts) -> InstanceFacts:
        index = facts.index
        works = not self._fails(index)
        expires_at = self.now + 5 if works and index not in self.cut_off_instances else facts.expires_at
        facts = replace(
            facts,
            listed_at=facts.listed_at if self.is_network_down else self.now,
            expires_at=expires_at,
            attempts=(PollAttempt(self.now, works), *facts.attempts[:1]),
        )
        if not works:
            return facts
        serving = ServingStatus.NOT_SERVING if index in self.cut_off_instances else ServingStatus.SERVING
        return replace(facts, serving=serving, serving_at=self.now, readyz=200, readyz_at=self.now)

    def _fails(self, index: int) -> bool:
        return self.is_network_down or index in self.frozen_instances

    def heartbeat(self) -> None:
        """Write the resource of the agent again."""
        row = self.resource[0]
        row["expires_at"], row["ttl"], row["ttl_seen"] = self.now + AGENT_TTL, AGENT_TTL, TTL
        row["auth"], row["mode"], row["desired_count"] = AUTH_1, ReconnectMode.PICK_FIRST, 1
        row["claimed_count"] = self.claimed_count


def start_healthy_timeline() -> FleetTimeline:
    """Return a timeline that has been healthy for 45 polls."""
    timeline = FleetTimeline()
    timeline.run_rounds(15)
    assert timeline.run_rounds(30) == [State.HEALTHY]
    return timeline


def test_agent_is_never_stranded_after_a_start_with_an_empty_record() -> None:
    """The agent is unknown at first and then healthy."""
    timeline = FleetTimeline()
    assert timeline.conclude() is State.UNKNOWN
    assert State.STRANDED not in timeline.run_rounds(30)
    assert timeline.round() is State.HEALTHY


def test_frozen_proxy_strands_its_agent_at_the_second_failed_attempt() -> None:
    """The first response afterwards makes it healthy."""
    timeline = start_healthy_timeline()
    timeline.frozen_instances.add(PROXY_1)
    assert timeline.round() is State.HEALTHY
    assert timeline.run_rounds(60) == [State.STRANDED]
    timeline.frozen_instances.clear()
    assert timeline.run_rounds(30) == [State.HEALTHY]


def test_agent_that_moves_off_a_frozen_proxy_stays_healthy() -> None:
    """Neither the last report of the frozen proxy nor its return changes the verdict."""
    timeline = start_healthy_timeline()
    timeline.frozen_instances.add(PROXY_1)
    timeline.run_rounds(15)
    timeline.tunnel = PROXY_2
    assert timeline.run_rounds(30) == [State.HEALTHY]
    timeline.frozen_instances.clear()
    assert timeline.run_rounds(30) == [State.HEALTHY]


def test_killed_agent_is_offline_at_once() -> None:
    """Its unexpired resource does not count."""
    timeline = start_healthy_timeline()
    timeline.is_agent_alive, timeline.tunnel = False, None
    assert timeline.run_rounds(60) == [State.OFFLINE]


def test_killed_agent_stays_offline_when_its_proxy_fails_later() -> None:
    """A later failure is not the cause."""
    timeline = start_healthy_timeline()
    timeline.is_agent_alive, timeline.tunnel = False, None
    timeline.run_rounds(60)
    timeline.frozen_instances.add(PROXY_1)
    assert timeline.run_rounds(60) == [State.OFFLINE]


def test_live_agent_without_a_tunnel_is_stranded_after_its_next_heartbeat() -> None:
    """All instances are healthy: only a heartbeat after the loss shows that the agent is alive."""
    timeline = start_healthy_timeline()
    timeline.tunnel = None
    assert timeline.run_rounds(30) == [State.OFFLINE, State.STRANDED]
    timeline.tunnel = PROXY_2
    assert timeline.run_rounds(30) == [State.HEALTHY]


def test_auth_without_its_backend_puts_agents_at_risk_and_strands_them() -> None:
    """With pick_first the agent recovers only with the auth."""
    timeline = start_healthy_timeline()
    timeline.cut_off_instances.add(AUTH_1)
    assert timeline.run_rounds(60) == [State.AT_RISK, State.STRANDED]
    timeline.cut_off_instances.clear()
    assert timeline.run_rounds(30)[-1] is State.HEALTHY


def test_network_failure_of_the_console_makes_agents_unknown() -> None:
    """No agent is stranded during or after the failure."""
    timeline = start_healthy_timeline()
    timeline.is_network_down = True
    assert timeline.run_rounds(60) == [State.HEALTHY, State.UNKNOWN]
    timeline.is_network_down = False
    assert timeline.run_rounds(30) == [State.HEALTHY]


def test_agent_that_closes_a_tunnel_stays_healthy_until_its_next_heartbeat() -> None:
    """Its proxies report one tunnel while its last heartbeat claims two for some polls."""
    timeline = start_healthy_timeline()
    timeline.resource["claimed_count"] = 2
    assert timeline.run_rounds(3) == [State.HEALTHY]
    timeline.resource["claimed_count"] = 1
    assert timeline.run_rounds(30) == [State.HEALTHY]


def test_agent_that_claims_missing_tunnels_is_degraded() -> None:
    """After several polls with a disagreement."""
    timeline = start_healthy_timeline()
    timeline.claimed_count = 2
    timeline.heartbeat()
    run_rounds = Timing(round_interval=1.0).min_disagreement_rounds
    assert [timeline.round() for _ in range(run_rounds)] == [State.HEALTHY] * (run_rounds - 1) + [
        State.DEGRADED
    ]
