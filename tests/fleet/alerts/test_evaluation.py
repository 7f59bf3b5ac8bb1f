from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.facts import AffectedGroup, ClusterFacts, SickInstance
from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.alerts.lifecycle.notification_plan import find_due_notification
from fleet.alerts.matchers import parse_matchers
from fleet.alerts.notifications import NotificationLinks, subject_of, text_of
from fleet.alerts.rules import DEFAULT_RULES
from fleet.alerts.silences import Silence
from fleet.vocabulary.incidents import (
    Cause,
    CauseKind,
    IncidentState,
    NotificationKind,
    Severity,
)
from tests.fakes.alerting import (
    AUTH,
    BACKEND,
    NO_TUNNEL,
    PROXY,
    AlertSimulation,
    healthy_facts,
    stale_facts,
    stranded_facts,
)


@pytest.mark.parametrize("poll_interval", [0.6, 5.0, 10.0])
def test_frozen_proxy_sends_one_firing_and_one_resolved_notification(poll_interval: float) -> None:
    """The first notification is sent within two polls, the group wait and 5 s."""
    simulation = AlertSimulation(poll_interval=poll_interval)
    simulation.run(20, healthy_facts())
    simulation.run(90, stranded_facts(207))
    simulation.run(600, healthy_facts())
    (firing_at, firing), (_, resolved_notification) = simulation.notifications
    assert simulation.notification_kinds == ["firing", "resolved"]
    assert firing_at - 20 <= 2 * poll_interval + 30 + 5
    assert (firing.incident.cause, firing.incident.affected_count, firing.incident.severity) == (
        PROXY,
        207,
        Severity.CRITICAL,
    )
    assert (resolved_notification.incident.cause, resolved_notification.incident.peak_count) == (PROXY, 207)
    assert resolved_notification.incident.duration_seconds(simulation.now) == pytest.approx(90, abs=1)
    assert firing.incident.id == resolved_notification.incident.id
    assert firing.key != resolved_notification.key


def test_failed_backend_is_one_incident_although_auths_fail_one_after_the_other() -> None:
    """Auths, proxies that expire after them, and thousands of agents have one cause."""
    auth_cause, other_auth_cause = AUTH, Cause(CauseKind.AUTH, "auth-id-2", "auth-2")
    auth_sick = replace(
        healthy_facts(),
        sick_instances=(SickInstance(auth_cause, "auth-1 answers, but its /readyz is 503.", 5000),),
    )
    both_auths_sick = replace(
        healthy_facts(),
        sick_instances=(
            *auth_sick.sick_instances,
            SickInstance(other_auth_cause, "auth-2 answers, but its /readyz is 503.", 5000),
        ),
        backend_down=True,
        affected_groups=(AffectedGroup(BACKEND, at_risk_count=10_000),),
    )
    proxies = tuple(
        SickInstance(
            Cause(CauseKind.PROXY, f"p{n}", f"proxy-{n}"), f"proxy-{n} expired.", 2500, is_expired_only=True
        )
        for n in range(4)
    )
    groups = (
        AffectedGroup(BACKEND, stranded_count=9000),
        *(AffectedGroup(instance.cause, stranded_count=250) for instance in proxies),
    )
    proxies_expired = replace(
        both_auths_sick,
        sick_instances=(*both_auths_sick.sick_instances, *proxies),
        affected_groups=groups,
        recently_lost_count=9000,
    )
    recovering = replace(
        healthy_facts(),
        sick_instances=proxies[:2],
        affected_groups=(AffectedGroup(NO_TUNNEL, stranded_count=500),),
        recently_lost_count=500,
    )
    simulation = AlertSimulation()
    for seconds, facts in (
        (20, healthy_facts()),
        (7, auth_sick),
        (40, both_auths_sick),
        (300, proxies_expired),
        (45, recovering),
        (900, healthy_facts()),
    ):
        simulation.run(seconds, facts)
    assert simulation.notification_kinds == ["firing", "resolved"]
    assert {notification.incident.key for _, notification in simulation.notifications} == {BACKEND.key}
    assert [
        instance.key for instance in simulation.fired_incidents.values() if instance.notification_count
    ] == [BACKEND.key]


def test_proxy_that_failed_before_the_backend_keeps_its_own_incident() -> None:
    """The backend explains its auths, but not a proxy that failed minutes earlier."""
    simulation = AlertSimulation()
    proxy_failed_at = simulation.now + 1
    proxy = replace(stranded_facts(207), sick_since={PROXY.key: proxy_failed_at})
    simulation.run(180, proxy)
    auths_failed_at = simulation.now + 1
    down = replace(
        proxy,
        sick_instances=(
            *proxy.sick_instances,
            SickInstance(AUTH, "auth-1 answers, but its /readyz is 503.", 5000),
        ),
        backend_down=True,
        affected_groups=(*proxy.affected_groups, AffectedGroup(BACKEND, at_risk_count=9000)),
        sick_since={
            PROXY.key: proxy_failed_at,
            AUTH.key: auths_failed_at,
            BACKEND.key: auths_failed_at - 10.0,
        },
    )
    simulation.run(300, down)
    assert [notification.incident.key for _, notification in simulation.notifications] == [
        PROXY.key,
        BACKEND.key,
    ]
    assert simulation.incidents[PROXY.key].inhibited_by == ""
    assert simulation.incidents[AUTH.key].inhibited_by == BACKEND.key


def test_cause_explains_its_stranded_agents_while_they_recover() -> None:
    """With announce TTLs of 10 min their recovery takes longer than the recovery time of the cause.

    Agents that are still stranded 15 min later get an incident of their own.
    """
    down = replace(
        healthy_facts(), backend_down=True, affected_groups=(AffectedGroup(BACKEND, stranded_count=9000),)
    )
    recovering = replace(healthy_facts(), affected_groups=(AffectedGroup(NO_TUNNEL, stranded_count=500),))
    for seconds, kinds in ((600, ["firing", "resolved"]), (1800, ["firing", "resolved", "firing"])):
        simulation = AlertSimulation()
        simulation.run(300, down)
        simulation.run(seconds, recovering, step=5)
        if len(kinds) == 2:
            simulation.run(900, healthy_facts(), step=5)
        assert simulation.notification_kinds == kinds


def test_stopped_polling_is_one_alert_about_the_console() -> None:
    """10 min without polls while agents are stranded: no notification is about agents."""
    simulation = AlertSimulation()
    simulation.run(8, stranded_facts(207))
    simulation.run(600, stale_facts())
    simulation.run(300, healthy_facts())
    assert simulation.notification_kinds == ["firing", "resolved"]
    assert {notification.incident.cause.kind for _, notification in simulation.notifications} == {
        CauseKind.CONSOLE
    }


def test_stale_facts_keep_the_state_of_open_incidents() -> None:
    """An incident is neither resolved nor repeated, and its recovery time starts again afterwards."""
    simulation = AlertSimulation()
    simulation.run(120, stranded_facts(207))
    simulation.run(60, healthy_facts())
    simulation.run(3600, stale_facts(), step=10)
    assert simulation.incidents[PROXY.key].state is IncidentState.RECOVERING
    simulation.run(290, healthy_facts())
    assert simulation.incidents[PROXY.key].state is IncidentState.RECOVERING
    simulation.run(20, healthy_facts())
    assert PROXY.key not in simulation.incidents
    assert [n.kind.value for _, n in simulation.notifications if n.incident.cause == PROXY] == [
        "firing",
        "resolved",
    ]


@pytest.mark.parametrize(("labels", "kinds"), [({"critical": 1}, ["firing", "flapping"]), ({}, [])])
@pytest.mark.parametrize("cause", [PROXY, NO_TUNNEL])
@pytest.mark.parametrize("phase_seconds", [60, 120])
def test_flapping_agent_notifies_once_if_it_is_critical(
    phase_seconds: int, cause: Cause, labels: dict[str, int], kinds: list[str]
) -> None:
    """In an hour of flapping: one firing and one flapping notification with the label, none without it."""
    facts = stranded_facts(1, cause, **labels)
    if cause is PROXY:
        facts = replace(facts, sick_instances=())
    simulation = AlertSimulation()
    for _ in range(3600 // (2 * phase_seconds)):
        simulation.run(phase_seconds, facts, step=5)
        simulation.run(phase_seconds, healthy_facts(), step=5)
    assert simulation.notification_kinds == kinds


def test_flapping_incident_is_resolved_once_after_30_quiet_minutes() -> None:
    """The incident stays open while it flaps."""
    simulation = AlertSimulation()
    for _ in range(6):
        simulation.run(60, stranded_facts(1, critical=1))
        simulation.run(60, healthy_facts())
    simulation.run(1700, healthy_facts(), step=5)
    assert simulation.notification_kinds == ["firing", "flapping"]
    simulation.run(200, healthy_facts(), step=5)
    assert simulation.notification_kinds == ["firing", "flapping", "resolved"]


def test_outage_that_is_over_before_its_first_notification_is_one_notification() -> None:
    """It says within 35 s what was the matter, and that it is over; nothing follows."""
    simulation = AlertSimulation()
    simulation.run(13, stranded_facts(113))
    simulation.run(900, healthy_facts())
    ((at, notification),) = simulation.notifications
    assert at <= 35
    assert subject_of(notification) == "OVER default: 113 agents were stranded (proxy-1) - over after 13 s"
    assert (notification.incident.severity, notification.incident.peak_count) == (Severity.CRITICAL, 113)
    assert [incident.state for incident in simulation.fired_incidents.values()] == [IncidentState.RESOLVED]


def test_agents_that_recover_before_their_proxy_are_said_to_be_stranded_for_a_shorter_time() -> None:
    """The duration of an incident is that of its cause: 5 s without agents are not 17 s."""
    simulation = AlertSimulation()
    simulation.run(5, stranded_facts(50))
    simulation.run(12, replace(stranded_facts(0), affected_groups=()))
    simulation.run(30, healthy_facts())
    ((_, notification),) = simulation.notifications
    assert subject_of(notification) == (
        "OVER default: 50 agents were stranded (proxy-1) - agents recovered after 5 s, over after 17 s"
    )
    simulation.run(20, stranded_facts(50))
    assert simulation.incidents[PROXY.key].affected_until is None
    simulation.run(600, healthy_facts())
    resolution = simulation.notifications[-1][1]
    lines = text_of(resolution, NotificationLinks()).splitlines()
    assert [line for line in lines if line.startswith("Recovery")] == [
        "Recovery: all agents recovered at 13:47:48 UTC, after 1 min 7 s."
    ]


def test_outage_that_returns_after_it_was_said_to_be_over_is_notified_at_once() -> None:
    """As if nothing had been sent: the next notification says that it is firing, and one that it is resolved."""
    simulation = AlertSimulation()
    simulation.run(13, stranded_facts(113))
    simulation.run(47, healthy_facts())
    simulation.run(12, stranded_facts(40))
    assert [kind for kind in simulation.notification_kinds if kind != "short-outage"] == ["firing"]
    assert simulation.notifications[-1][0] <= 62
    simulation.run(900, healthy_facts())
    assert simulation.notification_kinds == ["short-outage", "firing", "resolved"]


@pytest.mark.parametrize(
    "change", [{"silenced_by": "upgrade"}, {"inhibited_by": "backend/default"}, {"severity": Severity.INFO}]
)
def test_short_outage_that_nobody_should_hear_of_is_not_notified(change: dict[str, object]) -> None:
    """A silence, a stronger cause, or a severity that only digests have; nor minutes later, when that ends."""
    simulation = AlertSimulation()
    simulation.run(13, stranded_facts(113))
    simulation.run(10, healthy_facts())
    incident = simulation.incidents[PROXY.key]
    rules = {rule.name: rule for rule in DEFAULT_RULES}
    for seconds, changes in ((20, change), (100, {})):
        later = EvaluationContext(simulation.now + seconds, simulation.now + seconds, rules)
        assert find_due_notification(replace(incident, **changes), later) is None  # type: ignore[arg-type]
    due = EvaluationContext(simulation.now + 20, simulation.now + 20, rules)
    assert find_due_notification(incident, due) is NotificationKind.SHORT_OUTAGE


def test_recovery_updates_the_notification_in_place() -> None:
    """A message that says that an incident fires would be wrong for minutes."""
    simulation = AlertSimulation()
    simulation.run(60, stranded_facts(113))
    simulation.run(30, healthy_facts())
    simulation.run(30, stranded_facts(113))
    simulation.run(900, healthy_facts())
    kinds = [update.kind.value for update in simulation.updates_in_place]
    assert kinds == ["recovering", "recurred", "recovering"]
    assert len({update.key for update in simulation.updates_in_place}) == 3
    assert simulation.notification_kinds == ["firing", "resolved"]


def test_higher_severity_notifies_at_once_and_growth_after_the_group_interval() -> None:
    """A warning that becomes critical is sent at once; more affected agents wait for the group interval."""
    simulation = AlertSimulation()
    simulation.run(
        120, replace(healthy_facts(), sick_instances=(SickInstance(PROXY, "proxy-1 expired.", 100),))
    )
    simulation.run(60, stranded_facts(60))
    simulation.run(600, stranded_facts(600))
    assert simulation.notification_kinds == ["firing", "worse", "update"]


def test_incident_that_recurs_with_higher_severity_is_one_notification() -> None:
    """After a short recovery the proxy is sick again and strands agents: worse, without an update before it."""
    simulation = AlertSimulation()
    sick = replace(healthy_facts(), sick_instances=(SickInstance(PROXY, "proxy-1 expired.", 100),))
    for seconds, facts in ((400, sick), (60, healthy_facts()), (60, stranded_facts(207))):
        simulation.run(seconds, facts)
    assert simulation.notification_kinds == ["firing", "worse"]


def test_notification_repeats_until_acknowledged() -> None:
    """Every 4 h, and not after an acknowledgement."""
    simulation = AlertSimulation()
    simulation.run(4 * 3600 + 120, stranded_facts(207), step=10)
    assert simulation.notification_kinds == ["firing", "repeat"]
    simulation.incidents[PROXY.key] = replace(simulation.incidents[PROXY.key], acknowledged_at=simulation.now)
    simulation.run(5 * 3600, stranded_facts(207), step=10)
    assert simulation.notification_kinds == ["firing", "repeat"]


def test_silenced_incident_notifies_after_the_silence_ends() -> None:
    """No notification is sent during the silence."""
    simulation = AlertSimulation()
    simulation.silences = [
        Silence("upgrade of proxy-1", parse_matchers("cause=proxy-1"), simulation.now, simulation.now + 3600)
    ]
    simulation.run(3000, stranded_facts(207), step=5)
    assert simulation.notification_kinds == []
    assert simulation.incidents[PROXY.key].silenced_by == "upgrade of proxy-1"
    simulation.silences = []
    simulation.run(10, stranded_facts(207))
    assert simulation.notification_kinds == ["firing"]


def test_silence_of_a_notified_incident_is_an_update_in_place() -> None:
    """Its begin, each change of its end, and its end; no notification."""
    simulation = AlertSimulation()
    simulation.run(60, stranded_facts(207))
    ends_at = simulation.now + 3600
    silence = Silence("disks (alice)", parse_matchers("cause=proxy-1"), 0.0, ends_at, "", "alice")
    for silences in ([silence], [replace(silence, ends_at=ends_at + 60)], [silence], []):
        simulation.silences = silences
        simulation.run(20, stranded_facts(207))
    assert simulation.notification_kinds == ["firing"]
    assert [
        (update.kind.value, update.incident.silenced_by, update.incident.silenced_until)
        for update in simulation.updates_in_place
    ] == [
        ("silenced", "disks (alice)", ends_at),
        ("silenced", "disks (alice)", ends_at + 60),
        ("silenced", "disks (alice)", ends_at),
        ("unsilenced", "", None),
    ]
    assert simulation.updates_in_place[0].incident.silence_creator == "alice"
    assert len({update.key for update in simulation.updates_in_place}) == 4


def test_end_of_a_silence_that_sends_a_notification_is_no_update() -> None:
    """The notification shows the current state; before the first one there is nothing to update."""
    simulation = AlertSimulation()
    simulation.silences = [Silence("disks", parse_matchers("cause=proxy-1"), 0.0, 2_000_000.0)]
    simulation.run(60, stranded_facts(207))
    simulation.silences = []
    simulation.run(60, stranded_facts(207))
    assert simulation.notification_kinds == ["firing"]
    assert simulation.updates_in_place == []


def test_silent_proxy_is_not_explained_by_a_sick_auth() -> None:
    """A sick auth explains only a proxy that expired."""
    sick = SickInstance(AUTH, "auth-1 is silent.", 100)
    facts = stranded_facts(207)
    simulation = AlertSimulation()
    simulation.run(600, replace(facts, sick_instances=(sick, *facts.sick_instances)))
    assert PROXY.key in {notification.incident.key for _, notification in simulation.notifications}


def test_failing_proxies_of_a_group_are_one_incident() -> None:
    """Two of three proxies: the notification is about the group."""
    causes = [Cause(CauseKind.PROXY, f"p{n}", f"proxy-{n}") for n in range(3)]
    facts: ClusterFacts = replace(
        healthy_facts(),
        affected_groups=tuple(AffectedGroup(cause, stranded_count=100) for cause in causes[:2]),
        sick_instances=tuple(SickInstance(cause, f"{cause.name} is silent.", 100) for cause in causes[:2]),
        members_by_cause={
            Cause(CauseKind.GROUP, "eu", "proxy group eu"): tuple(cause.key for cause in causes),
        },
    )
    simulation = AlertSimulation()
    simulation.run(300, facts)
    assert [
        (notification.incident.key, notification.incident.affected_count)
        for _, notification in simulation.notifications
    ] == [("proxy-group/eu", 200)]
    assert simulation.incidents["proxy-group/eu"].summary == (
        "200 agents stranded because 2 of 3 instances of proxy group eu are failing."
    ), "of all its proxies"


def test_failing_instances_of_a_region_are_one_incident() -> None:
    """The region replaces its auth, its proxies and their group; a sick proxy elsewhere has its own incident."""
    inside = [AUTH, *(Cause(CauseKind.PROXY, f"p{n}", f"proxy-{n}") for n in range(3))]
    outside = Cause(CauseKind.PROXY, "p9", "proxy-9")
    sick = [*inside[:3], outside]
    facts: ClusterFacts = replace(
        healthy_facts(),
        affected_groups=tuple(AffectedGroup(cause, stranded_count=100) for cause in sick[1:]),
        sick_instances=tuple(SickInstance(cause, f"{cause.name} is silent.", 100) for cause in sick),
        members_by_cause={
            Cause(CauseKind.REGION, "eu-west", "region eu-west"): tuple(cause.key for cause in inside),
            Cause(CauseKind.GROUP, "blue", "proxy group blue"): tuple(cause.key for cause in inside[1:]),
        },
    )
    simulation = AlertSimulation()
    simulation.run(300, facts)
    affected_by_key = {
        notification.incident.key: notification.incident.affected_count
        for _, notification in simulation.notifications
    }
    assert affected_by_key == {"region/eu-west": 200, "proxy/p9": 100}
    assert simulation.incidents["proxy-group/blue"].inhibited_by == "region/eu-west"


def test_region_and_group_of_the_same_proxies_are_one_incident() -> None:
    """The region includes the group, although it has no other instance."""
    proxies = [Cause(CauseKind.PROXY, f"p{n}", f"proxy-{n}") for n in range(2)]
    keys = tuple(cause.key for cause in proxies)
    facts: ClusterFacts = replace(
        healthy_facts(),
        sick_instances=tuple(SickInstance(cause, f"{cause.name} is silent.", 100) for cause in proxies),
        members_by_cause={
            Cause(CauseKind.REGION, "eu-west", "region eu-west"): keys,
            Cause(CauseKind.GROUP, "blue", "proxy group blue"): keys,
        },
    )
    simulation = AlertSimulation()
    simulation.run(300, facts)
    assert {notification.incident.key for _, notification in simulation.notifications} == {"region/eu-west"}
    assert simulation.incidents["proxy-group/blue"].inhibited_by == "region/eu-west"


def test_region_without_affected_agents_lists_its_sick_instances() -> None:
    """The sentence lists all of them."""
    inside = [AUTH, *(Cause(CauseKind.PROXY, f"p{n}", f"proxy-{n}") for n in range(3))]
    facts: ClusterFacts = replace(
        healthy_facts(),
        sick_instances=tuple(SickInstance(cause, f"{cause.name} is silent.", 0) for cause in inside[:3]),
        members_by_cause={Cause(CauseKind.REGION, "eu", "region eu"): tuple(cause.key for cause in inside)},
    )
    simulation = AlertSimulation()
    simulation.run(300, facts)
    (sentence,) = {notification.incident.summary for _, notification in simulation.notifications}
    assert sentence == "3 of 4 instances of region eu are failing: auth-1, proxy-0, proxy-1."


def test_unexplained_loss_rate_notifies_once() -> None:
    """1 % of the fleet within a minute, without a cause."""
    simulation = AlertSimulation()
    simulation.run(90, replace(healthy_facts(), recently_lost_count=150))
    simulation.run(900, healthy_facts())
    assert simulation.notification_kinds == ["firing", "resolved"]


def test_recurring_cause_is_another_incident() -> None:
    """Receivers get another id for it."""
    simulation = AlertSimulation()
    for _ in range(2):
        simulation.run(60, stranded_facts(207))
        simulation.run(400, healthy_facts())
    assert simulation.notification_kinds == ["firing", "resolved"] * 2
    assert len({notification.incident.id for _, notification in simulation.notifications}) == 2
    assert len({notification.key for _, notification in simulation.notifications}) == 4


def test_sick_auth_and_its_dependent_proxies_are_one_incident() -> None:
    """Proxies of a group turn unhealthy and expire, and strand their agents; the notifications are about the auth."""
    proxies = [Cause(CauseKind.PROXY, f"p{n}", f"proxy-{n}") for n in (1, 2)]
    dependent_proxies = tuple(
        SickInstance(
            cause, f"{cause.name} expired.", 100, heartbeat_auth_key=AUTH.key, root_cause_key=AUTH.key
        )
        for cause in proxies
    )
    group = {Cause(CauseKind.GROUP, "blue", "proxy group blue"): tuple(cause.key for cause in proxies)}
    sick = SickInstance(AUTH, "auth-1 answers, but its /readyz is 503.", 50)
    down = replace(
        healthy_facts(),
        sick_instances=(sick, *dependent_proxies),
        affected_groups=(AffectedGroup(AUTH, stranded_count=200),),
        members_by_cause=group,
    )
    # The auth recovers a moment before the heartbeats of the proxies.
    recovering = replace(
        healthy_facts(),
        sick_instances=tuple(replace(incident, root_cause_key="") for incident in dependent_proxies),
        members_by_cause=group,
    )
    simulation = AlertSimulation()
    for seconds, facts in ((20, healthy_facts()), (300, down), (40, recovering), (900, healthy_facts())):
        simulation.run(seconds, facts)
    assert simulation.notification_kinds == ["firing", "resolved"]
    assert {notification.incident.key for _, notification in simulation.notifications} == {AUTH.key}
