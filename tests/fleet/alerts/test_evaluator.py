from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from fleet.alerts.evaluator import Evaluator, claim_ending_silences
from fleet.alerts.incident_actions import notify_silence_end
from fleet.alerts.outbox import select_due_deliveries
from fleet.lease import LeaseHeldError, LeaseLostError
from fleet.models.alerting import AgentSet, AlertClock, Channel, Delivery, Route, Silence
from fleet.models.incidents import Incident, IncidentEvent
from fleet.monitoring.state.identities import IdentityValidity
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State
from tests.fakes.evaluator_scenario import EvaluatorScenario

pytestmark = pytest.mark.django_db


def test_frozen_proxy_enqueues_one_firing_and_one_resolved_delivery() -> None:
    """With names, counts, links and a timeline, through the database."""
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=20)
    scenario.run(400)
    assert scenario.delivery_kinds == ["firing", "resolved"]
    firing, resolve = Delivery.objects.order_by("pk")
    assert firing.payload["incident"]["cause"]["name"] == "proxy-1"
    assert (firing.payload["incident"]["affected_count"], resolve.payload["incident"]["peak_count"]) == (
        20,
        20,
    )
    row = Incident.objects.get(state="resolved", notification_count__gt=0)
    assert firing.payload["links"]["Incident"] == f"https://console.example.com/incidents/{row.pk}/"
    runbooks = [delivery.payload["links"]["Runbook"] for delivery in (firing, resolve)]
    assert runbooks == [f"https://console.example.com/alerts/runbooks/proxy/?incident={row.pk}"] * 2
    assert list(IncidentEvent.objects.filter(incident=row).values_list("kind", flat=True)) == [
        "firing", "notification", "recovering", "notification", "resolved",
    ]  # fmt: skip
    json.dumps(firing.payload)


def test_stopped_polling_is_one_alert_about_the_console() -> None:
    """10 min without polls, then a recovery."""
    scenario = EvaluatorScenario()
    scenario.run(10)
    scenario.run(600, is_polling=False)
    scenario.run(100)
    assert scenario.delivery_kinds == ["firing", "resolved"]
    row = Incident.objects.get()
    assert row.cause_kind == "console"
    link = Delivery.objects.earliest("pk").payload["links"]["Runbook"]
    assert link.endswith(f"/alerts/runbooks/console/?incident={row.pk}")


def test_identity_that_expires_is_one_incident_until_it_is_renewed() -> None:
    """It fires in the last quarter of the lifetime, stays one incident when the identity expires, and resolves."""
    scenario = EvaluatorScenario()
    begins_at = scenario.now
    scenario.reader.identity_validity = IdentityValidity("refloat", begins_at, begins_at + 400.0)
    scenario.run(290)
    assert not Incident.objects.exists()
    scenario.run(60)
    row = Incident.objects.get()
    assert (row.cause_kind, row.state) == ("identity", "firing")
    assert "The identity of Refloat for cluster default expires at" in row.summary
    scenario.run(60)
    row.refresh_from_db()
    assert "expired at" in row.summary
    assert scenario.delivery_kinds == ["firing"]
    scenario.reader.identity_validity = IdentityValidity("refloat", scenario.now, scenario.now + 86400.0)
    scenario.run(120)
    assert Incident.objects.get().state == "resolved"
    assert scenario.delivery_kinds == ["firing", "resolved"]


def test_unavailable_redis_an_alert_about_the_console() -> None:
    """The fleet state cannot be read."""
    scenario = EvaluatorScenario()
    scenario.reader.down = True
    scenario.run(60)
    assert scenario.delivery_kinds == ["firing"]
    assert "cannot read the fleet state" in Incident.objects.get().summary


def test_start_waits_for_the_first_poll() -> None:
    """Workers start with alerting; only polls that do not come at all are an incident."""
    scenario = EvaluatorScenario()
    scenario.evaluator = Evaluator(cast("Reader", scenario.reader), "me", start_grace_seconds=15.0)
    scenario.run(15, is_polling=False)
    assert not Incident.objects.exists()
    scenario.run(10, is_polling=False)
    assert Incident.objects.get().cause_kind == "console"


def test_polls_that_stop_after_the_first_one_are_no_start() -> None:
    """The grace ends with the first poll, and does not end an incident of before a restart."""
    scenario = EvaluatorScenario()
    scenario.evaluator = Evaluator(cast("Reader", scenario.reader), "me", start_grace_seconds=3600.0)
    scenario.run(5)
    scenario.run(120, is_polling=False)
    assert Incident.objects.get().state == "firing"

    scenario.now += 20  # the lease of the process before the restart ends
    scenario.evaluator = Evaluator(cast("Reader", scenario.reader), "me", start_grace_seconds=3600.0)
    scenario.run(60, is_polling=False)
    assert Incident.objects.get().state == "firing"


def test_second_process_waits_for_the_lease() -> None:
    """The second process takes over when the lease of the first has expired."""
    scenario = EvaluatorScenario()
    scenario.run(5)
    second = Evaluator(cast("Reader", scenario.reader), "second")
    with pytest.raises(LeaseHeldError):
        second.evaluate_cluster("default", scenario.now + 1)
    second.evaluate_cluster("default", scenario.now + 20)
    with pytest.raises(LeaseHeldError):
        scenario.evaluator.evaluate_cluster("default", scenario.now + 21)
    assert AlertClock.objects.get().evaluated_at == round(scenario.now + 20, 6)


def test_process_paused_past_its_lease_writes_nothing() -> None:
    """It resumes in the middle of an evaluation after another process took over."""
    scenario = EvaluatorScenario()
    scenario.run(60)
    second = Evaluator(cast("Reader", scenario.reader), "me")
    read_table = scenario.reader.table

    def read_after_pause(cluster: str, now: float) -> FleetTable:
        """Return the table after another process has evaluated a healthy fleet."""
        scenario.reader.table = read_table  # type: ignore[method-assign]
        scenario.reader.as_of = now + 20
        second.evaluate_cluster(cluster, now + 20)
        scenario.reader.states = [State.STRANDED] * 20 + [State.HEALTHY] * 20
        return read_table(cluster, now)

    scenario.reader.table = read_after_pause  # type: ignore[method-assign]
    with pytest.raises(LeaseLostError):
        scenario.run(5)
    assert not Incident.objects.exists()
    assert AlertClock.objects.get().evaluated_at == round(scenario.now + 20, 6)


def test_silenced_agents_are_not_counted() -> None:
    """Silenced by name and by agent set."""
    scenario = EvaluatorScenario()
    AgentSet.objects.create(cluster_id="default", pattern="agent-[0-9]", name="lab")
    for matchers in ("agent_set=lab", "agent=agent-1*"):
        Silence.objects.create(
            matchers=matchers,
            reason="tests",
            creator="ada",
            starts_at=scenario.now,
            ends_at=scenario.now + 900,
        )
    scenario.run(60, stranded_count=20)
    row = Incident.objects.get(cause_kind="proxy")
    assert (row.affected_count, scenario.delivery_kinds) == (0, [])
    Silence.objects.filter(matchers="agent_set=lab").update(matchers="agent_set=l?b")
    scenario.run(10, stranded_count=20)
    assert Incident.objects.get(cause_kind="proxy").affected_count == 0


def test_escalation_notifies_its_channel_once_without_an_acknowledgement() -> None:
    """Once, to its own channel."""
    scenario = EvaluatorScenario()
    chief = Channel.objects.create(name="chief", kind="webhook")
    route = Route.objects.get(name="Everything")
    route.escalate_after = 300.0
    route.save()
    route.escalate_to.add(chief)
    scenario.run(900, stranded_count=20)
    assert list(Delivery.objects.filter(channel=chief).values_list("kind", flat=True)) == ["escalated"]
    assert Incident.objects.get(cause_kind="proxy").escalated_at is not None


def _begin_quiet_hours(scenario: EvaluatorScenario) -> float:
    """Give the route quiet hours that have just begun, and return when they end."""
    root = Route.objects.get(name="Everything")
    local = datetime.fromtimestamp(scenario.now, UTC)
    root.quiet_from = (local - timedelta(minutes=5)).time().replace(microsecond=0)
    root.quiet_until = (local + timedelta(hours=6)).time().replace(microsecond=0)
    root.save()
    return scenario.now + 6 * 3600


def test_critical_notification_releases_the_warning_held_by_quiet_hours() -> None:
    """A warning waits; when it becomes critical both notifications are sent in order."""
    scenario = EvaluatorScenario()
    ends_at = _begin_quiet_hours(scenario)
    scenario.run(200, stranded_count=0, is_proxy_sick=True)
    delivery = Delivery.objects.get()
    assert delivery.next_attempt_at == pytest.approx(ends_at, abs=5)
    assert delivery.delay_reason == "quiet hours of route Everything"
    scenario.run(60, stranded_count=20)
    assert scenario.delivery_kinds == ["firing", "worse"]
    assert all(at <= scenario.now for at in Delivery.objects.values_list("next_attempt_at", flat=True))
    assert [row.kind for row in select_due_deliveries(scenario.now)] == ["firing"]


def test_resolved_notification_of_a_warning_waits_for_the_end_of_quiet_hours() -> None:
    """Only critical notifications pass quiet hours."""
    scenario = EvaluatorScenario()
    scenario.run(200, stranded_count=0, is_proxy_sick=True)
    ends_at = _begin_quiet_hours(scenario)
    scenario.run(400)
    assert scenario.delivery_kinds == ["firing", "resolved"]
    (resolve,) = Delivery.objects.filter(kind="resolved")
    assert resolve.next_attempt_at == pytest.approx(ends_at, abs=5)


def test_route_by_agent_set_matches_incidents_that_affect_such_agents() -> None:
    """The agent set comes from a name pattern."""
    scenario = EvaluatorScenario()
    AgentSet.objects.create(cluster_id="default", pattern="agent-3", name="bank")
    bank = Channel.objects.create(name="bank", kind="webhook")
    root = Route.objects.get(name="Everything")
    Route.objects.create(name="banks", parent=root, matchers="agent_set=bank").channels.add(bank)
    scenario.run(60, stranded_count=20)
    assert list(Delivery.objects.values_list("channel__name", flat=True)) == ["bank"]
    assert Incident.objects.get(cause_kind="proxy").agent_sets == ["bank"]


def test_instances_with_policy_drift_become_an_incident() -> None:
    """The incident is informational and not sent."""
    scenario = EvaluatorScenario()
    scenario.evaluator = Evaluator(
        cast("Reader", scenario.reader), "me", find_drifted_instances=lambda cluster, views: ["proxy-1"]
    )
    scenario.run(3700, step=50)
    row = Incident.objects.get(cause_id="policies")
    assert (row.state, row.severity, row.affected_count) == ("firing", 0, 0)
    assert row.summary == "1 instance does not match the desired policies: proxy-1."
    assert not Delivery.objects.exists()


def test_ending_silence_is_claimed_once_before_its_end() -> None:
    """Within 15 min of its end; a short silence is not claimed right after its creation."""
    row = Silence.objects.create(reason="r", creator="ada", starts_at=0.0, ends_at=3600.0)
    Silence.objects.create(reason="short", creator="ada", starts_at=2600.0, ends_at=3200.0)
    assert claim_ending_silences(2650.0) == []
    assert claim_ending_silences(2750.0) == [row]
    assert claim_ending_silences(2751.0) == []


def test_silence_end_notifies_channels_of_the_silenced_incidents() -> None:
    """Not channels where each notification is an alert of its own."""
    scenario = EvaluatorScenario()
    pager = Channel.objects.create(name="pager", kind="pagerduty")
    Route.objects.get(name="Everything").channels.add(pager)
    row = Silence.objects.create(
        matchers="cause=proxy-1",
        reason="new disks",
        creator="ada",
        starts_at=scenario.now,
        ends_at=scenario.now + 3600,
    )
    scenario.run(120, stranded_count=20)
    assert scenario.delivery_kinds == []
    assert notify_silence_end(row, scenario.now) == 1
    (delivery,) = Delivery.objects.all()
    assert (delivery.channel.name, delivery.kind) == ("ops", "silence-ends")
    assert delivery.payload["subject"].startswith(
        "SILENCE ENDS SOON default: 20 agents stranded because proxy-1 is not responding"
    )
    assert IncidentEvent.objects.filter(kind="silence ends", text__endswith="new disks").exists()
    notify_silence_end(row, scenario.now)
    assert Delivery.objects.count() == 1


def test_evaluation_without_changes_neither_reads_nor_writes_incidents() -> None:
    """Only the lease and the alert clock are written."""
    scenario = EvaluatorScenario()
    scenario.run(900, stranded_count=20)
    scenario.now += 1
    scenario.reader.as_of = scenario.now
    with CaptureQueriesContext(connection) as queries:
        scenario.evaluator.evaluate_cluster("default", scenario.now)
    writes = [query["sql"].split()[1] for query in queries if query["sql"].startswith(("UPDATE", "INSERT"))]
    assert writes == ['"fleet_clusterlease"', '"fleet_alertclock"']
    assert not [query for query in queries if "marks" in query["sql"]]
    assert AlertClock.objects.get().evaluated_at == round(scenario.now, 6)


def test_rows_that_the_database_rounded_are_not_written_again() -> None:
    """The database stores microseconds; a process that takes over must find no difference to its own values."""
    scenario = EvaluatorScenario()
    scenario.now = float(int(scenario.now)) + 0.123456789
    scenario.run(900, stranded_count=20)
    scenario.now += 20
    second = Evaluator(cast("Reader", scenario.reader), "second", "https://console.example.com/")
    with CaptureQueriesContext(connection) as queries:
        second.evaluate_cluster("default", scenario.now)
    assert [query for query in queries if "marks" in query["sql"]], "it reads the incidents"
    assert not [query for query in queries if query["sql"].startswith("UPDATE fleet_incident")]


def test_acknowledgement_by_another_process_applies_to_incidents_in_memory() -> None:
    """The same holds for removing the acknowledgement."""
    scenario = EvaluatorScenario()
    scenario.run(900, stranded_count=20)
    Incident.objects.filter(state="firing").update(acknowledged_at=scenario.now, acknowledged_by="ada")
    scenario.run(5 * 3600, stranded_count=20, step=600)
    assert scenario.delivery_kinds == ["firing"]
    Incident.objects.filter(state="firing").update(acknowledged_at=None, acknowledged_by="")
    scenario.run(600, stranded_count=20, step=600)
    assert scenario.delivery_kinds == ["firing", "repeat"]


def test_process_that_takes_over_the_lease_reads_incidents_again() -> None:
    """Its old incidents in memory are dropped, so nothing is sent twice."""
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=20)
    first, second = scenario.evaluator, Evaluator(cast("Reader", scenario.reader), "second")
    scenario.now += 20
    scenario.evaluator = second
    scenario.run(400)
    assert scenario.delivery_kinds == ["firing", "resolved"]
    scenario.now += 20
    scenario.evaluator = first
    with pytest.raises(LeaseLostError):
        scenario.run(5)
    scenario.run(400)
    assert scenario.delivery_kinds == ["firing", "resolved"]


@pytest.mark.django_db(transaction=True)
def test_evaluation_that_could_not_be_saved_is_repeated() -> None:
    """The database refuses one write; memory must not differ from the database."""
    scenario = EvaluatorScenario()
    scenario.run(10, stranded_count=20)
    if connection.vendor == "postgresql":
        refuse = "FOR EACH ROW EXECUTE FUNCTION refuse_write()"
        function = "BEGIN RAISE EXCEPTION 'disk I/O error'; END"
        with connection.cursor() as cursor:
            cursor.execute(
                f"CREATE FUNCTION refuse_write() RETURNS trigger LANGUAGE plpgsql AS $${function}$$"
            )
    else:
        refuse = "BEGIN SELECT RAISE(ABORT, 'disk I/O error'); END"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TRIGGER broken BEFORE UPDATE ON fleet_incident {refuse}")
    with pytest.raises(DatabaseError):
        scenario.run(60, stranded_count=20)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("DROP FUNCTION refuse_write CASCADE")
        else:
            cursor.execute("DROP TRIGGER broken")
    scenario.run(60, stranded_count=20)
    assert scenario.delivery_kinds == ["firing"]
    assert Incident.objects.get(cause_kind="proxy").state == "firing"


def evaluate_paused(scenario: EvaluatorScenario, seconds: int, step: int = 5) -> None:
    """Evaluate a paused cluster, whose data gets older."""
    for _ in range(0, seconds, step):
        scenario.now += step
        scenario.evaluator.evaluate_cluster("default", scenario.now, is_paused=True)


def test_paused_cluster_resolves_its_incidents_and_opens_none() -> None:
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=20)
    evaluate_paused(scenario, 1200)
    assert scenario.delivery_kinds == ["firing", "resolved"]
    assert not Incident.objects.exclude(state="resolved").exists()


def test_process_that_starts_while_a_cluster_is_paused_evaluates_it() -> None:
    """It has no data of the cluster at all."""
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=20)
    scenario.evaluator = Evaluator(cast("Reader", scenario.reader), "me")
    scenario.now += 20
    evaluate_paused(scenario, 1200)
    assert not Incident.objects.exclude(state="resolved").exists()


def test_resumed_cluster_may_take_a_minute_to_its_first_round() -> None:
    scenario = EvaluatorScenario()
    scenario.run(60)
    evaluate_paused(scenario, 600)
    scenario.run(50, is_polling=False)
    assert not Incident.objects.exists()
    scenario.run(30, is_polling=False)
    assert Incident.objects.get().cause_kind == "console"


def test_new_cluster_may_take_a_minute_to_its_first_round() -> None:
    scenario = EvaluatorScenario()
    created_at = scenario.now
    for seconds, incident_count in ((5, 0), (55, 0), (65, 1)):
        scenario.reader.as_of = None
        scenario.evaluator.evaluate_cluster("default", created_at + seconds, created_at=created_at)
        assert Incident.objects.count() == incident_count
