"""Page, API, CLI, socket, incidents and notifications say the same of one round."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from django.db import DatabaseError
from django.test import Client

from dashboards.live.hub import create_headline_message
from dashboards.shared import headlines, record_reader
from fleet.alerts import store
from fleet.alerts.facts import facts_of_table
from fleet.alerts.headlines.headline import IncidentDescriber, describe_fleet
from fleet.alerts.notifications import NotificationLinks, payload_of
from fleet.cli.main import main
from fleet.models.clusters import Cluster
from fleet.models.incidents import Incident
from fleet.monitoring.state.tables import summary_of
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.incidents import CauseKind
from fleet.vocabulary.verdicts import Recovery, State
from tests.dashboards.conftest import MakeUser
from tests.fakes.alerting import AlertSimulation
from tests.fakes.console import TOKEN, run_console
from tests.fakes.headline_fleets import HarmedAgents, random_table, table_with
from tests.fakes.small_fleet import AUTH_1, NOW, UNHEALTHY


def _read(monkeypatch: pytest.MonkeyPatch, table: FleetTable) -> None:
    """Let the console read this table."""
    reader = SimpleNamespace(
        table=lambda cluster, now: table,
        summary=lambda cluster, now: summary_of(table),
        missing_capabilities=lambda cluster: {},
    )
    monkeypatch.setattr(record_reader, "reader", lambda: reader)
    monkeypatch.setattr(record_reader, "current_time", lambda: NOW)


def _page_of(client: Client) -> tuple[str, str, dict[str, int]]:
    """Return title, headline and counts of Fleet now."""
    html = client.get("/").content.decode()
    counts = re.findall(r'data-count="(\w+)">([\d,]+)<', html)
    (text, _) = re.findall(r'id="headline-text" title="([^"]*)">([^<]*)<', html)[0]
    (title,) = re.findall(r"<title>([^<]*)<", html)
    return title, unescape(text), {slug: int(count.replace(",", "")) for slug, count in counts}


@pytest.mark.django_db
def test_all_say_the_same_of_random_fleets(
    client: Client, person: MakeUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text and counts of page, API, CLI, frame and socket are equal for every fleet."""
    client.force_login(person("viewer"))
    with run_console() as console:
        for seed in range(40):
            table = random_table(seed)
            _read(monkeypatch, table)
            headline = describe_fleet(table, (), NOW)
            counts = {state.slug: count for state, count in headline.counts.items()}
            title, text, page_counts = _page_of(client)
            assert (text, page_counts) == (headline.text, counts)
            assert title == f"{headline.tab_title} Fleet now · Refloat".strip()
            response = client.get("/api/v1/fleet/summary").json()
            assert (response["headline"]["text"], response["counts"]) == (text, counts)
            assert client.get("/incidents/badge.json").json()["headline"]["text"] == text
            message = json.loads(create_headline_message(headline, "default").text)
            assert {name: message[name] for name in response["headline"]} == response["headline"] | {
                name: message[name] for name in ("since", "recovers_at", "strands_at", "causes")
            }
            assert message["counts"] == counts
            console.responses = {"/api/v1/fleet/summary": (200, response)}
            environment = {"REFLOAT_URL": console.url, "REFLOAT_TOKEN": TOKEN}
            lines = CliRunner(env=environment).invoke(main, ["summary"]).output.splitlines()
            assert lines[0].endswith(text)
            assert f"stranded         {counts['stranded']}" in lines


@pytest.mark.parametrize("seed", range(60))
def test_incidents_and_notifications_say_the_same(seed: int) -> None:
    """The page of an incident and its notification; with one cause, also the headline."""
    table = random_table(seed)
    simulation = AlertSimulation(now=NOW)
    simulation.run(700, facts_of_table(table, NOW), step=10)
    headline, describer = describe_fleet(table, (), simulation.now), IncidentDescriber(table, simulation.now)
    for _, notification in simulation.notifications:
        incident = notification.incident
        incident_headline = describer.describe(incident.cause)
        if incident.cause.kind is CauseKind.FLEET or incident_headline is None:
            continue
        payload = payload_of(notification, NotificationLinks())["incident"]
        assert payload["affected_count"] == incident_headline.affected_count
        assert payload["summary"] == incident_headline.summary.removesuffix(".")
        if (
            len(headline.causes) == 1
            and sum(headline.counts[state] for state in (State.STRANDED, State.AT_RISK))
            == incident_headline.affected_count
        ):
            assert incident_headline.summary in headline.text


@pytest.mark.django_db
def test_page_of_an_incident_counts_the_agents_that_it_lists(
    client: Client, person: MakeUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the newest round, while the last evaluation saw others."""
    client.force_login(person("operator"))
    agents = HarmedAgents(7, State.STRANDED, AUTH_1, Recovery.ONLY_IF_CAUSE_RECOVERS)
    _read(monkeypatch, table_with(agents, auth_1=UNHEALTHY))
    Cluster.objects.get_or_create(id="default")
    incident = Incident.objects.create(
        cluster_id="default", key="auth/uuid-auth-1", cause_kind="auth", cause_id="uuid-auth-1",
        cause_name="auth-1", generation=1, state="firing", severity=2, opened_at=NOW, affected_count=67,
        summary="67 agents stranded.",
    )  # fmt: skip
    (listed_incident,) = client.get("/api/v1/incidents").json()["incidents"]
    assert (listed_incident["affected_count"], listed_incident["summary"]) == (
        7,
        "7 agents stranded since 13:45 UTC because auth-1 lost its backend",
    )
    assert store.read_open_incidents("default")[0].number == incident.pk
    (number,) = client.get("/api/v1/fleet/summary").json()["headline"]["incidents"]
    assert number == incident.pk


def test_headline_is_made_once_per_round_and_set_of_incidents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every socket and page of a process shares it."""
    table, other_table = table_with(), replace(table_with())
    first = headlines.headline_of(table, (), NOW)
    assert headlines.headline_of(table, (), NOW) is first
    assert headlines.headline_of(table, (headlines.OpenIncident(1, "x"),), NOW) is not first
    assert headlines.headline_of(other_table, (), NOW) is not first
    assert headlines.headline_of(other_table, (), NOW + 86_400) is not headlines.headline_of(
        other_table, (), NOW
    )


def test_headline_survives_a_database_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It then links no incidents."""

    def fail(_cluster: str) -> Any:
        raise DatabaseError("down")

    monkeypatch.setattr(store, "read_open_incidents", fail)
    assert headlines.read_open_incidents("default") == ()
