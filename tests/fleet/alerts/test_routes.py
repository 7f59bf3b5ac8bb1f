from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time

from fleet.alerts.matchers import parse_matchers
from fleet.alerts.routes import QuietHours, Route, escalates_at, match_routes, plan_receivers
from fleet.vocabulary.incidents import Incident, IncidentState, NotificationKind, Severity
from tests.fakes.alerting import PROXY

_PAGE, _TICKET, _CHIEF, _EU = 1, 2, 3, 4
_TREE = (
    Route(
        "all",
        channels=(_TICKET,),
        children=(
            Route("eu", matchers=parse_matchers("cause=proxy-1"), channels=(_EU,), should_continue=True),
            Route(
                "critical",
                min_severity=Severity.CRITICAL,
                channels=(_PAGE,),
                escalate_after=900.0,
                escalate_to=(_CHIEF,),
            ),
        ),
    ),
)
_CRITICAL = Incident(
    "default", PROXY, 1, IncidentState.FIRING, 0.0, severity=Severity.CRITICAL, fired_at=10.0, notices=1
)
_WARNING = replace(_CRITICAL, severity=Severity.WARNING)


def _told(incident: Incident, kind: NotificationKind = NotificationKind.FIRING) -> set[int]:
    return set(plan_receivers(match_routes(_TREE, incident), incident, kind, 100.0))


def test_first_child_that_matches_takes_it_unless_it_goes_on() -> None:
    """Children before parents; who goes on lets the next one hear too."""
    assert _told(_CRITICAL) == {_EU, _PAGE}
    assert _told(_WARNING) == {_EU}
    other = replace(_WARNING, cause=replace(PROXY, name="proxy-2"))
    assert _told(other) == {_TICKET}
    assert _told(replace(other, severity=Severity.INFO)) == set()


def test_second_level_is_told_when_nobody_acknowledges() -> None:
    """After its time, once, and from then on it hears how it goes on."""
    found = match_routes(_TREE, _CRITICAL)
    assert escalates_at(found, _CRITICAL) == 910.0
    for settled in ({"acked_at": 1.0}, {"escalated_at": 1.0}, {"silenced_by": "x"}, {"notices": 0}):
        assert escalates_at(found, replace(_CRITICAL, **settled)) is None  # type: ignore[arg-type]
    assert _told(_CRITICAL, NotificationKind.ESCALATED) == {_CHIEF}
    assert _told(replace(_CRITICAL, escalated_at=1.0), NotificationKind.RESOLVED) == {_EU, _PAGE, _CHIEF}


def test_quiet_hours_hold_back_all_but_critical() -> None:
    """Until they end, by the clock on the wall."""
    quiet = QuietHours(time(22), time(7), "Europe/Berlin")
    night = datetime(2026, 7, 1, 1, 30, tzinfo=UTC).timestamp()
    route = Route("r", channels=(_TICKET,), quiet_hours=quiet)
    (at, why), *_ = plan_receivers(
        match_routes((route,), _WARNING), _WARNING, NotificationKind.FIRING, night
    ).values()
    assert datetime.fromtimestamp(at, UTC) == datetime(2026, 7, 1, 5, tzinfo=UTC)
    assert why == "quiet hours of route r"
    (at, why), *_ = plan_receivers(
        match_routes((route,), _CRITICAL), _CRITICAL, NotificationKind.FIRING, night
    ).values()
    assert (at, why) == (night, "")
    assert quiet.end_after(datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp()) is None
