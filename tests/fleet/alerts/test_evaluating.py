from __future__ import annotations

import json
import time
from typing import cast

import pytest

from fleet.alerts.evaluating import Evaluator, NotOurs, warn_of_ends
from fleet.domain.instances import InstanceState
from fleet.domain.verdicts import NO_CAUSE, Reason, State
from fleet.domain.views import FleetTable
from fleet.models import Cluster
from fleet.models.alerting import AgentLabel, AlertClock, Channel, Delivery, Route, Silence
from fleet.models.incidents import Incident, IncidentEvent
from fleet.state.reader import Reader
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

    def run(self, seconds: int, *, stranded: int = 0, polling: bool = True, step: int = 5) -> None:
        """Look every few seconds while so many agents are stranded."""
        self.fleet.states = [State.STRANDED] * stranded + [State.HEALTHY] * (40 - stranded)
        self.fleet.proxy_state = InstanceState.SILENT if stranded else InstanceState.OK
        for _ in range(0, seconds, step):
            self.now += step
            if polling:
                self.fleet.as_of = self.now
            self.evaluator.look("default", self.now)

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
    assert "record cannot be read" in Incident.objects.get().sentence


def test_second_process_waits_for_the_lease() -> None:
    """Two processes look; one writes, and the other takes over when it is gone."""
    told = Told()
    told.run(5)
    second = Evaluator(cast("Reader", told.fleet), "second")
    with pytest.raises(NotOurs):
        second.look("default", told.now + 1)
    second.look("default", told.now + 20)
    with pytest.raises(NotOurs):
        told.evaluator.look("default", told.now + 21)
    assert AlertClock.objects.get().looked_at == told.now + 20


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


def test_end_of_a_silence_is_told_once_and_before() -> None:
    """Within a quarter of an hour."""
    row = Silence.objects.create(reason="r", creator="ada", starts_at=0.0, ends_at=1000.0)
    assert warn_of_ends(50.0) == []
    assert warn_of_ends(200.0) == [row]
    assert warn_of_ends(201.0) == []
