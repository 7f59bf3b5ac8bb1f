from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time

from fleet.alerts.matchers import parse_matchers
from fleet.alerts.routing.tree import (
    QuietHours,
    Route,
    TrialStep,
    escalates_at,
    make_trial_incident,
    match_routes,
    plan_receivers,
    try_routes,
)
from fleet.vocabulary.incidents import Incident, IncidentState, NotificationKind, Severity
from tests.fakes.alerting import PROXY

_PAGE, _TICKET, _CHIEF, _EU = 1, 2, 3, 4
_TREE = (
    Route(
        "all",
        channel_ids=(_TICKET,),
        children=(
            Route("eu", matchers=parse_matchers("cause=proxy-1"), channel_ids=(_EU,), should_continue=True),
            Route(
                "critical",
                min_severity=Severity.CRITICAL,
                channel_ids=(_PAGE,),
                escalate_after=900.0,
                escalate_to=(_CHIEF,),
            ),
        ),
    ),
)
_CRITICAL = Incident(
    "default",
    PROXY,
    1,
    IncidentState.FIRING,
    0.0,
    severity=Severity.CRITICAL,
    fired_at=10.0,
    notified_at=40.0,
)
_WARNING = replace(_CRITICAL, severity=Severity.WARNING)


def _receivers(incident: Incident, kind: NotificationKind = NotificationKind.FIRING) -> set[int]:
    return set(plan_receivers(match_routes(_TREE, incident), incident, kind, 100.0))


def test_first_matching_child_receives_the_incident_unless_it_continues() -> None:
    """Children before parents; a route that continues lets its next sibling match too."""
    assert _receivers(_CRITICAL) == {_EU, _PAGE}
    assert _receivers(_WARNING) == {_EU}
    other_proxy = replace(_WARNING, cause=replace(PROXY, name="proxy-2"))
    assert _receivers(other_proxy) == {_TICKET}
    assert _receivers(replace(other_proxy, severity=Severity.INFO)) == set()


def test_route_may_notify_the_channels_of_its_parent_too() -> None:
    """Each channel once."""
    child = Route(
        "critical",
        min_severity=Severity.CRITICAL,
        channel_ids=(_PAGE, _TICKET),
        includes_parent_channels=True,
    )
    tree = (Route("all", channel_ids=(_TICKET, _EU), children=(child,)),)
    assert match_routes(tree, _CRITICAL)[0].channel_ids == (_TICKET, _EU, _PAGE)
    assert match_routes(tree, _WARNING)[0].channel_ids == (_TICKET, _EU)


def test_escalation_is_due_without_an_acknowledgement() -> None:
    """Once; the escalation channel then also receives later notifications."""
    routes = match_routes(_TREE, _CRITICAL)
    assert escalates_at(routes, _CRITICAL) == 910.0
    for changes in (
        {"acknowledged_at": 1.0},
        {"escalated_at": 1.0},
        {"silenced_by": "x"},
        {"notified_at": None},
    ):
        assert escalates_at(routes, replace(_CRITICAL, **changes)) is None  # type: ignore[arg-type]
    assert _receivers(_CRITICAL, NotificationKind.ESCALATED) == {_CHIEF}
    assert _receivers(replace(_CRITICAL, escalated_at=1.0), NotificationKind.RESOLVED) == {_EU, _PAGE, _CHIEF}


def test_quiet_hours_delay_all_but_critical_notifications() -> None:
    """Until they end in the time zone of the route."""
    quiet = QuietHours(time(22), time(7), "Europe/Berlin")
    night = datetime(2026, 7, 1, 1, 30, tzinfo=UTC).timestamp()
    route = Route("r", channel_ids=(_TICKET,), quiet_hours=quiet)
    (due_at, reason), *_ = plan_receivers(
        match_routes((route,), _WARNING), _WARNING, NotificationKind.FIRING, night
    ).values()
    assert datetime.fromtimestamp(due_at, UTC) == datetime(2026, 7, 1, 5, tzinfo=UTC)
    assert reason == "quiet hours of route r"
    (due_at, reason), *_ = plan_receivers(
        match_routes((route,), _CRITICAL), _CRITICAL, NotificationKind.FIRING, night
    ).values()
    assert (due_at, reason) == (night, "")
    assert quiet.end_after(datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp()) is None


#: 2026-11-28 00:00 UTC.
_MIDNIGHT = 1_795_824_000.0


def test_steps_are_in_the_order_of_time() -> None:
    """The escalation comes after its delay, if the incident is critical."""
    tree = (
        Route(
            "all", channel_ids=(_TICKET,), escalate_after=600.0, escalate_to=(_CHIEF,), should_continue=True
        ),
        Route(
            "rule",
            matchers=parse_matchers("rule=drift agent_set=lab", is_for_route=True),
            channel_ids=(_PAGE,),
        ),
    )
    incident = make_trial_incident("default", PROXY, Severity.CRITICAL, "", "", _MIDNIGHT)
    assert try_routes(tree, incident, _MIDNIGHT).steps == (
        TrialStep(_TICKET, 0.0),
        TrialStep(_CHIEF, 600.0, "nobody acknowledged the incident", is_escalation=True),
    )
    incident = make_trial_incident("default", PROXY, Severity.WARNING, "lab", "drift", _MIDNIGHT)
    assert {step.channel_id for step in try_routes(tree, incident, _MIDNIGHT).steps} == {_TICKET, _PAGE}


def test_quiet_hours_delay_a_warning() -> None:
    """Until their end, with the reason."""
    tree = (Route("all", channel_ids=(_TICKET,), quiet_hours=QuietHours(time(22), time(7), "UTC")),)
    warning = make_trial_incident("default", PROXY, Severity.WARNING, "", "", _MIDNIGHT)
    (step,) = try_routes(tree, warning, _MIDNIGHT).steps
    assert step == TrialStep(_TICKET, 7 * 3600.0, "quiet hours of route all")
    critical = make_trial_incident("default", PROXY, Severity.CRITICAL, "", "", _MIDNIGHT)
    assert try_routes(tree, critical, _MIDNIGHT).steps == (TrialStep(_TICKET, 0.0),)
