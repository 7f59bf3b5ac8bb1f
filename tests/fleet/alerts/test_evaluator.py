from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from fleet.alerts.evaluator import Evaluator, claim_ending_silences
from fleet.alerts.incident_actions import notify_silence_end
from fleet.alerts.outbox import due_deliveries
from fleet.lease import LeaseHeldError, LeaseLostError
from fleet.models import Cluster
from fleet.models.alerting import AgentLabel, AlertClock, Channel, Delivery, Route, Silence
from fleet.models.incidents import Incident, IncidentEvent
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import NO_CAUSE, Reason, State
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


class Fleet(FakeReader):
    """A fake reader whose stranded agents are proxy-1's fault."""

    def table(self, cluster: str, now: float) -> FleetTable:
        """See Reader."""
        table = super().table(cluster, now)
        hurt = table.verdicts["state"] == State.STRANDED
        table.verdicts["cause"] = [2 if one else NO_CAUSE for one in hurt]
        table.verdicts["packed"] = Reason.PROXY_UNHEALTHY
        return table


class Told:
    """An evaluator with a fleet, and a clock that is moved by hand."""

    def __init__(self) -> None:
        Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
        self.channel = Channel.objects.create(
            name="ops", kind="webhook", config={"url": "https://example.com"}
        )
        Route.objects.get(name="Everything").channels.add(self.channel)
        self.now = time.time()
        self.fleet = Fleet([State.HEALTHY] * 40)
        self.evaluator = Evaluator(cast("Reader", self.fleet), "me", "https://console.example.com/")

    def run(
        self, seconds: int, *, stranded: int = 0, polling: bool = True, step: int = 5, sick: bool = False
    ) -> None:
        """Look every few seconds while so many agents are stranded, and their proxy or only it is `sick`."""
        self.fleet.states = [State.STRANDED] * stranded + [State.HEALTHY] * (40 - stranded)
        self.fleet.proxy_state = InstanceState.SILENT if stranded or sick else InstanceState.OK
        for _ in range(0, seconds, step):
            self.now += step
            if polling:
                self.fleet.as_of = self.now
            self.evaluator.evaluate_cluster("default", self.now)

    @property
    def kinds(self) -> list[str]:
        """What is in the outbox."""
        return list(Delivery.objects.order_by("pk").values_list("kind", flat=True))


def test_frozen_proxy_is_one_delivery_and_one_resolve() -> None:
    """Through the database, with names, counts, links and a timeline."""
    told = Told()
    told.run(60, stranded=20)
    told.run(400)
    assert told.kinds == ["firing", "resolved"]
    page, resolve = Delivery.objects.order_by("pk")
    assert page.payload["incident"]["cause"]["name"] == "proxy-1"
    assert (page.payload["incident"]["affected"], resolve.payload["incident"]["peak"]) == (20, 20)
    row = Incident.objects.get(state="resolved", notices__gt=0)
    assert page.payload["links"]["Incident"] == f"https://console.example.com/incidents/{row.pk}/"
    assert list(IncidentEvent.objects.filter(incident=row).values_list("kind", flat=True)) == [
        "firing", "notice", "recovering", "notice", "resolved",
    ]  # fmt: skip
    json.dumps(page.payload)


def test_timeline_says_that_nobody_was_told() -> None:
    """A route without a channel: the incident is shown, and its timeline claims no message."""
    told = Told()
    Route.objects.get(name="Everything").channels.clear()
    told.run(60, stranded=20)
    told.run(400)
    said = IncidentEvent.objects.filter(kind="notice").order_by("pk").values_list("text", flat=True)
    assert list(said) == [
        "Nothing was sent because the route has no channel: notification due (firing).",
        "Nothing was sent because the route has no channel: notification due (resolved).",
    ]
    assert told.kinds == []


def test_pollers_stopped_is_one_alert_about_the_console() -> None:
    """Ten minutes, nothing stranded, then all is well."""
    told = Told()
    told.run(10)
    told.run(600, polling=False)
    told.run(100)
    assert told.kinds == ["firing", "resolved"]
    assert set(Incident.objects.values_list("cause_kind", flat=True)) == {"console"}


def test_redis_away_is_told_as_our_own_blindness() -> None:
    """The record cannot be read: that is known without it."""
    told = Told()
    told.fleet.down = True
    told.run(60)
    assert told.kinds == ["firing"]
    assert "cannot read the fleet state" in Incident.objects.get().sentence


def test_second_process_waits_for_the_lease() -> None:
    """Two processes look; one writes, and the other takes over when it is gone."""
    told = Told()
    told.run(5)
    second = Evaluator(cast("Reader", told.fleet), "second")
    with pytest.raises(LeaseHeldError):
        second.evaluate_cluster("default", told.now + 1)
    second.evaluate_cluster("default", told.now + 20)
    with pytest.raises(LeaseHeldError):
        told.evaluator.evaluate_cluster("default", told.now + 21)
    assert AlertClock.objects.get().looked_at == round(told.now + 20, 6)


def test_process_that_was_paused_past_its_lease_writes_nothing() -> None:
    """It goes on in the middle of a look, with what it read before another process took over: a page too many."""
    told = Told()
    told.run(60)
    second = Evaluator(cast("Reader", told.fleet), "me")
    read = told.fleet.table

    def pause(cluster: str, now: float) -> FleetTable:
        """Answer after another process has looked at a fleet in which all is well."""
        told.fleet.table = read  # type: ignore[method-assign]
        told.fleet.as_of = now + 20
        second.evaluate_cluster(cluster, now + 20)
        told.fleet.states = [State.STRANDED] * 20 + [State.HEALTHY] * 20
        return read(cluster, now)

    told.fleet.table = pause  # type: ignore[method-assign]
    with pytest.raises(LeaseLostError):
        told.run(5)
    assert not Incident.objects.exists()
    assert AlertClock.objects.get().looked_at == round(told.now + 20, 6)


def test_silenced_agents_are_not_counted() -> None:
    """By name and by label."""
    told = Told()
    AgentLabel.objects.create(cluster_id="default", pattern="agent-[0-9]", label="lab")
    for matchers in ("label=lab", "agent=agent-1*"):
        Silence.objects.create(
            matchers=matchers, reason="tests", creator="ada", starts_at=told.now, ends_at=told.now + 900
        )
    told.run(60, stranded=20)
    row = Incident.objects.get(cause_kind="proxy")
    assert (row.affected, told.kinds) == (0, [])
    Silence.objects.filter(matchers="label=lab").update(matchers="label=l?b")
    told.run(10, stranded=20)
    assert Incident.objects.get(cause_kind="proxy").affected == 0


def test_second_level_is_told_when_nobody_acknowledges() -> None:
    """Once, to its own channel."""
    told = Told()
    chief = Channel.objects.create(name="chief", kind="webhook")
    route = Route.objects.get(name="Everything")
    route.escalate_after = 300.0
    route.save()
    route.escalate_to.add(chief)
    told.run(900, stranded=20)
    assert list(Delivery.objects.filter(channel=chief).values_list("kind", flat=True)) == ["escalated"]
    assert Incident.objects.get(cause_kind="proxy").escalated_at is not None


def _at_night(told: Told) -> float:
    """Give the route quiet hours that have just begun; when they end."""
    root = Route.objects.get(name="Everything")
    local = datetime.fromtimestamp(told.now, UTC)
    root.quiet_from = (local - timedelta(minutes=5)).time().replace(microsecond=0)
    root.quiet_until = (local + timedelta(hours=6)).time().replace(microsecond=0)
    root.save()
    return told.now + 6 * 3600


def test_page_passes_quiet_hours_with_the_warning_they_held_back() -> None:
    """A warning waits; when it becomes critical both go out, in order: nobody sleeps through a page."""
    told = Told()
    ends_at = _at_night(told)
    told.run(200, stranded=0, sick=True)
    held = Delivery.objects.get()
    assert held.next_attempt_at == pytest.approx(ends_at, abs=5)
    assert held.waits_for == "quiet hours of route Everything"
    told.run(60, stranded=20)
    assert told.kinds == ["firing", "worse"]
    assert all(at <= told.now for at in Delivery.objects.values_list("next_attempt_at", flat=True))
    assert [row.kind for row in due_deliveries(told.now)] == ["firing"]


def test_resolve_of_a_warning_waits_for_the_end_of_quiet_hours() -> None:
    """What is not worth waking anybody for is not when it is over, either."""
    told = Told()
    told.run(200, stranded=0, sick=True)
    ends_at = _at_night(told)
    told.run(400)
    assert told.kinds == ["firing", "resolved"]
    (resolve,) = Delivery.objects.filter(kind="resolved")
    assert resolve.next_attempt_at == pytest.approx(ends_at, abs=5)


def test_route_by_label_takes_incidents_that_harm_such_agents() -> None:
    """From the pattern of a name to a channel."""
    told = Told()
    AgentLabel.objects.create(cluster_id="default", pattern="agent-3", label="bank")
    bank = Channel.objects.create(name="bank", kind="webhook")
    root = Route.objects.get(name="Everything")
    Route.objects.create(name="banks", parent=root, matchers="label=bank").channels.add(bank)
    told.run(60, stranded=20)
    assert list(Delivery.objects.values_list("channel__name", flat=True)) == ["bank"]
    assert Incident.objects.get(cause_kind="proxy").labels == ["bank"]


def test_drift_is_asked_for_once_in_a_round() -> None:
    """What others know of wanted policies becomes an incident, which is never sent by itself."""
    told = Told()
    told.evaluator = Evaluator(
        cast("Reader", told.fleet), "me", find_drifted=lambda cluster, views: ["proxy-1"]
    )
    told.run(3700, step=50)
    row = Incident.objects.get(cause_id="policies")
    assert (row.state, row.severity, row.affected) == ("firing", 0, 0)
    assert row.sentence == "1 instance does not match the desired policies: proxy-1."
    assert not Delivery.objects.exists()


def test_end_of_a_silence_is_told_once_and_before() -> None:
    """Within a quarter of an hour, and of a short one not when it has just been made."""
    row = Silence.objects.create(reason="r", creator="ada", starts_at=0.0, ends_at=3600.0)
    Silence.objects.create(reason="short", creator="ada", starts_at=2600.0, ends_at=3200.0)
    assert claim_ending_silences(2650.0) == []
    assert claim_ending_silences(2750.0) == [row]
    assert claim_ending_silences(2751.0) == []


def test_end_of_a_silence_is_told_to_who_would_hear_of_what_it_keeps_quiet() -> None:
    """Before the page comes; not where every message is an alert of its own."""
    told = Told()
    pager = Channel.objects.create(name="pager", kind="pagerduty")
    Route.objects.get(name="Everything").channels.add(pager)
    row = Silence.objects.create(
        matchers="cause=proxy-1",
        reason="new disks",
        creator="ada",
        starts_at=told.now,
        ends_at=told.now + 3600,
    )
    told.run(120, stranded=20)
    assert told.kinds == []
    assert notify_silence_end(row, told.now) == 1
    (said,) = Delivery.objects.all()
    assert (said.channel.name, said.kind) == ("ops", "silence-ends")
    assert said.payload["subject"].startswith("SILENCE ENDS SOON default: 20 agents stranded, proxy-1")
    assert IncidentEvent.objects.filter(kind="silence ends", text__endswith="new disks").exists()
    notify_silence_end(row, told.now)
    assert Delivery.objects.count() == 1


def test_look_that_finds_the_same_reads_little_and_writes_no_incident() -> None:
    """A new round that changed nothing: the watchdog is told, and open incidents are not even read."""
    told = Told()
    told.run(900, stranded=20)
    told.now += 1
    told.fleet.as_of = told.now
    with CaptureQueriesContext(connection) as taken:
        told.evaluator.evaluate_cluster("default", told.now)
    writes = [query["sql"].split()[1] for query in taken if query["sql"].startswith(("UPDATE", "INSERT"))]
    assert writes == ['"fleet_clusterlease"', '"fleet_alertclock"']
    assert not [query for query in taken if "marks" in query["sql"]]
    assert AlertClock.objects.get().looked_at == round(told.now, 6)


def test_rows_that_the_database_rounded_are_not_written_again() -> None:
    """Whoever takes over reads moments to the microsecond, and finds no difference to what it computes."""
    told = Told()
    told.now = float(int(told.now)) + 0.123456789
    told.run(900, stranded=20)
    told.now += 20
    second = Evaluator(cast("Reader", told.fleet), "second", "https://console.example.com/")
    with CaptureQueriesContext(connection) as taken:
        second.evaluate_cluster("default", told.now)
    assert [query for query in taken if "marks" in query["sql"]], "it reads the incidents"
    assert not [query for query in taken if query["sql"].startswith("UPDATE fleet_incident")]


def test_acknowledgement_counts_though_incidents_stay_in_memory() -> None:
    """It comes from a page, that is from another process; taking it back does, too."""
    told = Told()
    told.run(900, stranded=20)
    Incident.objects.filter(state="firing").update(acked_at=told.now, acked_by="ada")
    told.run(5 * 3600, stranded=20, step=600)
    assert told.kinds == ["firing"]
    Incident.objects.filter(state="firing").update(acked_at=None, acked_by="")
    told.run(600, stranded=20, step=600)
    assert told.kinds == ["firing", "repeat"]


def test_process_that_takes_over_reads_what_the_other_left() -> None:
    """What it had in memory from before is forgotten, so nothing is sent twice."""
    told = Told()
    told.run(60, stranded=20)
    first, second = told.evaluator, Evaluator(cast("Reader", told.fleet), "second")
    told.now += 20
    told.evaluator = second
    told.run(400)
    assert told.kinds == ["firing", "resolved"]
    told.now += 20
    told.evaluator = first
    with pytest.raises(LeaseLostError):
        told.run(5)
    told.run(400)
    assert told.kinds == ["firing", "resolved"]


@pytest.mark.django_db(transaction=True)
def test_look_that_could_not_be_kept_is_taken_again() -> None:
    """The database refuses the incidents once: memory must not hold what the database does not."""
    told = Told()
    told.run(10, stranded=20)
    refuse = "BEGIN SELECT RAISE(ABORT, 'disk I/O error'); END"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TRIGGER broken BEFORE UPDATE ON fleet_incident {refuse}")
    with pytest.raises(DatabaseError):
        told.run(60, stranded=20)
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER broken")
    told.run(60, stranded=20)
    assert told.kinds == ["firing"]
    assert Incident.objects.get(cause_kind="proxy").state == "firing"
