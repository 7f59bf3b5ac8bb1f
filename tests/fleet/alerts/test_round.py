from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.facts import AffectedGroup, Facts, SickInstance
from fleet.alerts.matchers import parse_matchers
from fleet.alerts.silences import Silence
from fleet.vocabulary.incidents import Cause, CauseKind, IncidentState, Severity
from tests.fakes.alerting import AUTH, BACKEND, NO_TUNNEL, PROXY, Watch, sightless, sound, stranded


@pytest.mark.parametrize("interval", [0.6, 5.0, 10.0])
def test_frozen_proxy_is_one_page_and_one_resolve(interval: float) -> None:
    """The page comes within two polls, the group wait and 5 s; both name proxy, count and duration."""
    watch = Watch(interval=interval)
    watch.run(20, sound())
    watch.run(90, stranded(207))
    watch.run(600, sound())
    (paged, page), (_, resolve) = watch.notices
    assert watch.kinds == ["firing", "resolved"]
    assert paged - 20 <= 2 * interval + 30 + 5
    assert (page.incident.cause, page.incident.affected, page.incident.severity) == (
        PROXY,
        207,
        Severity.CRITICAL,
    )
    assert (resolve.incident.cause, resolve.incident.peak) == (PROXY, 207)
    assert resolve.incident.duration(watch.now) == pytest.approx(90, abs=1)
    assert page.incident.id == resolve.incident.id
    assert page.key != resolve.key


def test_dead_backend_is_one_incident_also_when_auths_fall_one_after_the_other() -> None:
    """Auths, proxies that expire behind them, and agents by the thousand: one cause, one page, one resolve."""
    auth, other = AUTH, Cause(CauseKind.AUTH, "auth-id-2", "auth-2")
    first = replace(sound(), sick=(SickInstance(auth, "auth-1 answers, but its /readyz is 503.", 5000),))
    both = replace(
        sound(),
        sick=(*first.sick, SickInstance(other, "auth-2 answers, but its /readyz is 503.", 5000)),
        backend_down=True,
        groups=(AffectedGroup(BACKEND, at_risk_count=10_000),),
    )
    proxies = tuple(
        SickInstance(
            Cause(CauseKind.PROXY, f"p{n}", f"proxy-{n}"), f"proxy-{n} expired.", 2500, expired_only=True
        )
        for n in range(4)
    )
    groups = (
        AffectedGroup(BACKEND, stranded_count=9000),
        *(AffectedGroup(one.cause, stranded_count=250) for one in proxies),
    )
    late = replace(both, sick=(*both.sick, *proxies), groups=groups, recently_lost_count=9000)
    mending = replace(
        sound(),
        sick=proxies[:2],
        groups=(AffectedGroup(NO_TUNNEL, stranded_count=500),),
        recently_lost_count=500,
    )
    watch = Watch()
    for seconds, facts in ((20, sound()), (7, first), (40, both), (300, late), (45, mending), (900, sound())):
        watch.run(seconds, facts)
    assert watch.kinds == ["firing", "resolved"]
    assert {notice.incident.key for _, notice in watch.notices} == {BACKEND.key}
    assert [one.key for one in watch.fired.values() if one.notices] == [BACKEND.key]


def test_proxy_that_was_dead_before_the_backend_failed_stands_for_itself() -> None:
    """It was told; the backend explains its auths, and not the proxy that was killed minutes earlier."""
    watch = Watch()
    dead = watch.now + 1
    proxy = replace(stranded(207), sick_since={PROXY.key: dead})
    watch.run(180, proxy)
    failed = watch.now + 1
    down = replace(
        proxy,
        sick=(*proxy.sick, SickInstance(AUTH, "auth-1 answers, but its /readyz is 503.", 5000)),
        backend_down=True,
        groups=(*proxy.groups, AffectedGroup(BACKEND, at_risk_count=9000)),
        sick_since={PROXY.key: dead, AUTH.key: failed, BACKEND.key: failed - 10.0},
    )
    watch.run(300, down)
    assert [notice.incident.key for _, notice in watch.notices] == [PROXY.key, BACKEND.key]
    assert watch.incidents[PROXY.key].inhibited_by == ""
    assert watch.incidents[AUTH.key].inhibited_by == BACKEND.key


def test_cause_is_not_over_while_agents_it_stranded_come_back() -> None:
    """With announce TTLs of ten minutes that takes longer than the quiet time: no page of their own meanwhile.

    It is not put off for ever: who is stranded still after a quarter of an hour more is a trouble of their own.
    """
    down = replace(sound(), backend_down=True, groups=(AffectedGroup(BACKEND, stranded_count=9000),))
    left = replace(sound(), groups=(AffectedGroup(NO_TUNNEL, stranded_count=500),))
    for seconds, kinds in ((600, ["firing", "resolved"]), (1800, ["firing", "resolved", "firing"])):
        watch = Watch()
        watch.run(300, down)
        watch.run(seconds, left, step=5)
        if len(kinds) == 2:
            watch.run(900, sound(), step=5)
        assert watch.kinds == kinds


def test_pollers_that_stop_are_one_alert_about_the_console() -> None:
    """Ten minutes without a round, in the midst of trouble: nothing of agents, one page, one resolve."""
    watch = Watch()
    watch.run(8, stranded(207))
    watch.run(600, sightless())
    watch.run(300, sound())
    assert watch.kinds == ["firing", "resolved"]
    assert {notice.incident.cause.kind for _, notice in watch.notices} == {CauseKind.CONSOLE}


def test_blindness_holds_what_fires_as_it_is() -> None:
    """An incident is neither resolved nor repeated by our own failure, and its quiet time begins after it."""
    watch = Watch()
    watch.run(120, stranded(207))
    watch.run(60, sound())
    watch.run(3600, sightless(), step=10)
    assert watch.incidents[PROXY.key].state is IncidentState.RECOVERING
    watch.run(290, sound())
    assert watch.incidents[PROXY.key].state is IncidentState.RECOVERING
    watch.run(20, sound())
    assert PROXY.key not in watch.incidents
    assert [n.kind.value for _, n in watch.notices if n.incident.cause == PROXY] == ["firing", "resolved"]


@pytest.mark.parametrize(("labels", "kinds"), [({"critical": 1}, ["firing", "flapping"]), ({}, [])])
@pytest.mark.parametrize("cause", [PROXY, NO_TUNNEL])
@pytest.mark.parametrize("half", [60, 120])
def test_flapping_agent_pages_once_if_it_is_critical(
    half: int, cause: Cause, labels: dict[str, int], kinds: list[str]
) -> None:
    """An hour of coming and going: one firing and one flapping notice with the label, none without it."""
    facts = stranded(1, cause, **labels)
    if cause is PROXY:
        facts = replace(facts, sick=())
    watch = Watch()
    for _ in range(3600 // (2 * half)):
        watch.run(half, facts, step=5)
        watch.run(half, sound(), step=5)
    assert watch.kinds == kinds


def test_flapping_ends_with_one_resolve_after_thirty_quiet_minutes() -> None:
    """The incident stays open while it flaps, and is resolved once."""
    watch = Watch()
    for _ in range(6):
        watch.run(60, stranded(1, critical=1))
        watch.run(60, sound())
    watch.run(1700, sound(), step=5)
    assert watch.kinds == ["firing", "flapping"]
    watch.run(200, sound(), step=5)
    assert watch.kinds == ["firing", "flapping", "resolved"]


def test_blip_shorter_than_the_group_wait_is_not_told() -> None:
    """What heals before anybody was told is in the history only."""
    watch = Watch()
    watch.run(20, stranded(207))
    watch.run(900, sound())
    assert watch.kinds == []
    assert [one.state for one in watch.fired.values()] == [IncidentState.RESOLVED]


def test_worse_is_said_at_once_and_growth_after_the_interval() -> None:
    """A warning that becomes critical does not wait; many more agents wait for the group interval."""
    watch = Watch()
    watch.run(120, replace(sound(), sick=(SickInstance(PROXY, "proxy-1 expired.", 100),)))
    watch.run(60, stranded(60))
    watch.run(600, stranded(600))
    assert watch.kinds == ["firing", "worse", "update"]


def test_trouble_that_comes_back_worse_is_one_message() -> None:
    """Quiet for a while, then the proxy is sick again and its agents are stranded: worse, and no update before it."""
    watch = Watch()
    sick = replace(sound(), sick=(SickInstance(PROXY, "proxy-1 expired.", 100),))
    for seconds, facts in ((400, sick), (60, sound()), (60, stranded(207))):
        watch.run(seconds, facts)
    assert watch.kinds == ["firing", "worse"]


def test_same_trouble_is_repeated_until_somebody_acknowledges() -> None:
    """Every four hours, and no more after an acknowledgement."""
    watch = Watch()
    watch.run(4 * 3600 + 120, stranded(207), step=10)
    assert watch.kinds == ["firing", "repeat"]
    watch.incidents[PROXY.key] = replace(watch.incidents[PROXY.key], acked_at=watch.now)
    watch.run(5 * 3600, stranded(207), step=10)
    assert watch.kinds == ["firing", "repeat"]


def test_silence_keeps_quiet_and_what_outlives_it_is_told() -> None:
    """Nothing while it holds; the page comes when it has ended."""
    watch = Watch()
    watch.quiet = [
        Silence("upgrade of proxy-1", parse_matchers("cause=proxy-1"), watch.now, watch.now + 3600)
    ]
    watch.run(3000, stranded(207), step=5)
    assert watch.kinds == []
    assert watch.incidents[PROXY.key].silenced_by == "upgrade of proxy-1"
    watch.quiet = []
    watch.run(10, stranded(207))
    assert watch.kinds == ["firing"]


def test_dead_proxy_behind_a_sick_auth_stands_for_itself() -> None:
    """Only a proxy that merely expired is explained by an auth; one that is silent pages."""
    sick = SickInstance(AUTH, "auth-1 is silent.", 100)
    facts = stranded(207)
    watch = Watch()
    watch.run(600, replace(facts, sick=(sick, *facts.sick)))
    assert PROXY.key in {notice.incident.key for _, notice in watch.notices}


def test_proxies_of_a_group_that_fail_together_are_one_cause() -> None:
    """Two of three: the group pages, and no proxy of it."""
    causes = [Cause(CauseKind.PROXY, f"p{n}", f"proxy-{n}") for n in range(3)]
    facts: Facts = replace(
        sound(),
        groups=tuple(AffectedGroup(cause, stranded_count=100) for cause in causes[:2]),
        sick=tuple(SickInstance(cause, f"{cause.name} is silent.", 100) for cause in causes[:2]),
        members_by_cause={
            Cause(CauseKind.GROUP, "eu", "proxy group eu"): tuple(cause.key for cause in causes),
        },
    )
    watch = Watch()
    watch.run(300, facts)
    assert [(notice.incident.key, notice.incident.affected) for _, notice in watch.notices] == [
        ("proxy-group/eu", 200)
    ]
    assert watch.incidents["proxy-group/eu"].sentence == "200 agents stranded.", "of all its proxies"


def test_region_whose_auth_and_proxies_fail_together_is_one_cause() -> None:
    """It stands for its auth, its proxies and the group that is all there; who is sick elsewhere pages as well."""
    inside = [AUTH, *(Cause(CauseKind.PROXY, f"p{n}", f"proxy-{n}") for n in range(3))]
    outside = Cause(CauseKind.PROXY, "p9", "proxy-9")
    sick = [*inside[:3], outside]
    facts: Facts = replace(
        sound(),
        groups=tuple(AffectedGroup(cause, stranded_count=100) for cause in sick[1:]),
        sick=tuple(SickInstance(cause, f"{cause.name} is silent.", 100) for cause in sick),
        members_by_cause={
            Cause(CauseKind.REGION, "eu-west", "region eu-west"): tuple(cause.key for cause in inside),
            Cause(CauseKind.GROUP, "blue", "proxy group blue"): tuple(cause.key for cause in inside[1:]),
        },
    )
    watch = Watch()
    watch.run(300, facts)
    told = {notice.incident.key: notice.incident.affected for _, notice in watch.notices}
    assert told == {"region/eu-west": 200, "proxy/p9": 100}
    assert watch.incidents["proxy-group/blue"].inhibited_by == "region/eu-west"


def test_region_that_harms_nobody_names_who_is_sick_in_it() -> None:
    """The words of one instance would stand for all of them."""
    inside = [AUTH, *(Cause(CauseKind.PROXY, f"p{n}", f"proxy-{n}") for n in range(3))]
    facts: Facts = replace(
        sound(),
        sick=tuple(SickInstance(cause, f"{cause.name} is silent.", 0) for cause in inside[:3]),
        members_by_cause={Cause(CauseKind.REGION, "eu", "region eu"): tuple(cause.key for cause in inside)},
    )
    watch = Watch()
    watch.run(300, facts)
    (said,) = {notice.incident.sentence for _, notice in watch.notices}
    assert said == "3 of 4 instances are failing: auth-1, proxy-0, proxy-1."


def test_rate_of_loss_pages_once_when_nothing_explains_it() -> None:
    """One percent of the fleet within a minute, without a cause: one page."""
    watch = Watch()
    watch.run(90, replace(sound(), recently_lost_count=150))
    watch.run(900, sound())
    assert watch.kinds == ["firing", "resolved"]


def test_cause_that_comes_again_is_another_incident() -> None:
    """Receivers get another id, so that they do not take it for the old one."""
    watch = Watch()
    for _ in range(2):
        watch.run(60, stranded(207))
        watch.run(400, sound())
    assert watch.kinds == ["firing", "resolved"] * 2
    assert len({notice.incident.id for _, notice in watch.notices}) == 2
    assert len({notice.key for _, notice in watch.notices}) == 4


def test_auth_with_proxies_that_heartbeat_through_it_is_one_incident() -> None:
    """Proxies of one group turn unhealthy and expire, their agents strand; one page and one resolve, of the auth."""
    proxies = [Cause(CauseKind.PROXY, f"p{n}", f"proxy-{n}") for n in (1, 2)]
    behind = tuple(
        SickInstance(cause, f"{cause.name} expired.", 100, depends_on=AUTH.key, root_cause=AUTH.key)
        for cause in proxies
    )
    group = {Cause(CauseKind.GROUP, "blue", "proxy group blue"): tuple(cause.key for cause in proxies)}
    sick = SickInstance(AUTH, "auth-1 answers, but its /readyz is 503.", 50)
    down = replace(
        sound(),
        sick=(sick, *behind),
        groups=(AffectedGroup(AUTH, stranded_count=200),),
        members_by_cause=group,
    )
    # The auth is well a moment before the proxies have heartbeated.
    mending = replace(
        sound(), sick=tuple(replace(one, root_cause="") for one in behind), members_by_cause=group
    )
    watch = Watch()
    for seconds, facts in ((20, sound()), (300, down), (40, mending), (900, sound())):
        watch.run(seconds, facts)
    assert watch.kinds == ["firing", "resolved"]
    assert {notice.incident.key for _, notice in watch.notices} == {AUTH.key}
