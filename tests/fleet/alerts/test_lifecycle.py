from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.facts import AffectedGroup
from fleet.alerts.findings import evaluate_rules
from fleet.alerts.lifecycle import (
    Evaluation,
    advance,
    due_notification,
    hold,
    plan_notification,
    with_notification,
)
from fleet.alerts.matchers import parse_matchers
from fleet.alerts.rules import DEFAULT_RULES
from fleet.alerts.silences import Silence
from fleet.vocabulary.incidents import Incident, IncidentState, NotificationKind, Severity
from tests.fakes.alerting import PROXY, Watch, sound, stranded

_RULES = {rule.name: rule for rule in DEFAULT_RULES}
_FINDING = evaluate_rules(stranded(207), DEFAULT_RULES)[PROXY.key]
_NEW = Incident("default", PROXY, 1, IncidentState.PENDING, 100.0)


def _look(now: float, number: float | None = None) -> Evaluation:
    return Evaluation(now, now if number is None else number, _RULES)


def test_pending_needs_two_rounds_not_two_looks() -> None:
    """Looking twice at the same round proves nothing."""
    once = advance(_NEW, _FINDING, _look(100.0, 1.0)).incident
    assert once is not None
    twice = advance(once, _FINDING, _look(101.0, 1.0)).incident
    assert twice is not None
    assert twice.state is IncidentState.PENDING
    fired = advance(twice, _FINDING, _look(102.0, 2.0)).incident
    assert fired is not None
    assert (fired.state, fired.fired_at, fired.affected) == (IncidentState.FIRING, 102.0, 207)


def test_pending_that_ends_is_forgotten() -> None:
    """One bad round is no incident."""
    assert advance(_NEW, None, _look(100.0)).incident is None


def test_hold_forgets_what_is_pending_and_begins_quiet_anew() -> None:
    """Without eyes nothing ripens."""
    assert hold(_NEW, 200.0).incident is None
    quiet = replace(_NEW, state=IncidentState.RECOVERING, quiet_since=150.0)
    held = hold(quiet, 200.0).incident
    assert held is not None
    assert held.quiet_since == 200.0


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"inhibited_by": "backend/default"}, "inhibited by backend/default"),
        ({"silenced_by": "upgrade"}, "silenced: upgrade"),
        ({"acked_at": 1.0, "notified_at": 1.0, "notices": 1}, "the incident is acknowledged"),
    ],
)
def test_plan_says_why_nothing_is_sent(change: dict[str, object], because: str) -> None:
    """Each reason is a sentence on the page."""
    watch = Watch()
    watch.run(60, stranded(207))
    incident = watch.incidents[PROXY.key]
    said = replace(incident, notified_severity=incident.severity, **change)  # type: ignore[arg-type]
    assert plan_notification(said, _look(watch.now)).reason == because
    assert due_notification(said, _look(watch.now)) is None


def test_plan_says_when_the_next_message_comes() -> None:
    """The first after the group wait, then the repeat."""
    watch = Watch()
    watch.run(15, stranded(207))
    incident = watch.incidents[PROXY.key]
    first = plan_notification(incident, _look(watch.now))
    assert (first.at, first.kind) == (incident.opened_at + 30, NotificationKind.FIRING)
    again = plan_notification(with_notification(incident, watch.now), _look(watch.now))
    assert (again.at, again.kind) == (watch.now + 4 * 3600, NotificationKind.REPEAT)


def test_what_is_over_is_called_what_it_was_at_its_worst() -> None:
    """Not what it ended with: a critical one that left one agent at risk behind was critical."""
    watch = Watch()
    watch.run(60, stranded(207))
    worst = watch.incidents[PROXY.key]
    watch.run(120, stranded(3))
    watch.run(90, replace(stranded(0), groups=()))
    assert watch.incidents[PROXY.key].severity is Severity.WARNING

    watch.run(1200, sound())

    over = watch.fired[worst.id]
    assert over.state is IncidentState.RESOLVED
    assert (over.severity, over.sentence, over.peak) == (Severity.CRITICAL, "207 agents were stranded.", 207)


def test_agents_that_fled_are_told_with_the_severity_and_the_number_that_they_had() -> None:
    """A proxy dies and its agents are elsewhere within the group wait: one page within 35 s, and one resolve."""
    watch = Watch()
    watch.run(13, stranded(113))
    dead = replace(stranded(0), groups=())
    watch.run(60, dead)
    ((at, page),) = watch.notices
    assert at <= 35
    assert (page.incident.severity, page.incident.peak, page.incident.affected) == (Severity.CRITICAL, 113, 0)
    assert page.incident.sentence == "113 agents were stranded."
    now = watch.incidents[PROXY.key]
    assert (now.severity, now.sentence) == (Severity.WARNING, "proxy-1 does not answer.")
    watch.run(400, sound())
    assert watch.kinds == ["firing", "resolved"]


def test_agents_that_fled_during_a_silence_are_not_told_when_it_ends() -> None:
    """An hour later what is told is how it is then: a proxy that is dead."""
    watch = Watch()
    watch.quiet = [Silence("upgrade", parse_matchers("cause=proxy-1"), watch.now, watch.now + 3600)]
    watch.run(13, stranded(113))
    dead = replace(stranded(0), groups=())
    watch.run(3000, dead, step=5)
    watch.quiet = []
    watch.run(10, dead)
    ((_, page),) = watch.notices
    assert (page.incident.severity, page.incident.sentence) == (Severity.WARNING, "proxy-1 does not answer.")


def test_incident_that_nobody_is_harmed_by_any_more_is_called_what_its_peak_was() -> None:
    """The name and the figure beside it count the same agents, also where most fled before it fired."""
    watch = Watch()
    watch.run(4, replace(stranded(60), groups=(AffectedGroup(PROXY, stranded_count=60, at_risk_count=70),)))
    watch.run(60, stranded(80))
    assert watch.incidents[PROXY.key].sentence == "80 agents stranded."
    watch.run(10, sound())
    quiet = watch.incidents[PROXY.key]
    assert (quiet.state, quiet.affected, quiet.peak) == (IncidentState.RECOVERING, 0, 130)
    assert quiet.sentence == "60 agents were stranded and 70 at risk."
    watch.run(400, sound())
    (over,) = watch.fired.values()
    assert (over.sentence, over.peak) == (quiet.sentence, 130)


def test_agents_at_risk_that_strand_later_are_called_stranded_when_the_incident_is_over() -> None:
    """The number of affected agents stays the same while they strand: stranded is the worse of the two."""
    watch = Watch()
    for at_risk in (27, 18, 0, 27):
        group = AffectedGroup(PROXY, stranded_count=27 - at_risk, at_risk_count=at_risk)
        watch.run(20, replace(stranded(27 - at_risk), groups=(group,)))
    watch.run(10, sound())
    quiet = watch.incidents[PROXY.key]
    assert (quiet.state, quiet.peak) == (IncidentState.RECOVERING, 27)
    assert quiet.sentence == "27 agents were stranded."


def test_trend_is_thinned() -> None:
    """Sixty points at most, and only where something changed."""
    watch = Watch()
    for count in range(100, 1600, 2):
        watch.run(11, stranded(count), step=11)
    watch.run(60, sound(), step=10)
    assert len(watch.incidents[PROXY.key].trend) == 60


def test_end_of_an_incident_is_planned_although_it_is_silenced() -> None:
    """Its end is sent, so the page must not say that nothing is; of one that nobody heard of nothing is sent."""
    watch = Watch()
    watch.run(60, stranded(207))
    watch.run(5, sound())
    incident = replace(watch.incidents[PROXY.key], silenced_by="upgrade")
    assert incident.state is IncidentState.RECOVERING
    coming = plan_notification(incident, _look(watch.now))
    assert coming.kind is NotificationKind.RESOLVED
    assert coming.at is not None
    assert coming.at > watch.now
    assert due_notification(incident, _look(watch.now)) is None
    unheard = plan_notification(replace(incident, notices=0), _look(watch.now))
    assert (unheard.at, unheard.reason) == (None, "silenced: upgrade")
