from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fleet.alerts.notifications import (
    Links,
    agents_path,
    describe_recovery,
    format_duration,
    headline,
    make_test_notification,
    payload,
    subject,
    text,
)
from fleet.vocabulary.incidents import Cause, CauseKind, Notification, NotificationKind
from tests.fakes.alerting import NO_TUNNEL, PROXY, Watch, sound, stranded

_LINKS = Links("https://console.example.com", "https://wiki.example.com/proxy", 7)


def _notices() -> list[Notification]:
    watch = Watch(now=1_790_000_000.0)
    watch.run(90, stranded(207))
    watch.run(400, sound(), step=2)
    return [notice for _, notice in watch.notices]


def test_page_and_resolve_name_proxy_count_and_duration() -> None:
    """They read as SMS."""
    page, resolve = _notices()
    assert subject(page) == "CRIT default: 207 agents stranded, proxy-1"
    assert subject(resolve) == "RESOLVED default: proxy-1 after 91 s, peak 207 agents"


def test_text_has_six_lines_and_three_links() -> None:
    """What, why, how many, since when, whether by itself, who; incident, agents, runbook."""
    said = text(_notices()[0], _LINKS).splitlines()
    assert len(said) == 9
    assert "https://console.example.com/incidents/7/" in said[-3]
    assert "proxy=proxy-1" in said[-2]
    assert "agent-0" in said[5]
    assert "and 197 more" in said[5]
    assert said[4] == "Recovery: not known yet."


def test_lines_of_a_message_have_a_label_each() -> None:
    """A program that reads it by line is not led astray."""
    labels = [line.partition(":")[0] for line in text(_notices()[0], _LINKS).splitlines()]
    assert labels == [
        *("Summary", "Cause", "Affected", "Since", "Recovery", "Affected agents"),
        *("Incident", "Agent list", "Runbook"),
    ]


def test_message_about_agents_that_fled_names_them_as_of_before() -> None:
    """None are affected now: nothing is said of a recovery to come, and the rest of the names is counted right."""
    page = _notices()[0]
    gone = replace(page, incident=replace(page.incident, affected=0, sentence="207 agents were stranded."))
    assert subject(gone) == "CRIT default: 207 agents were stranded, proxy-1 - no agents affected now"
    said = text(gone, Links()).splitlines()
    assert said[2] == "Affected: 0 agents now, peak 207."
    assert said[4] == "Recovery: no agents are affected now."
    assert said[5].startswith("Previously affected agents: agent-0, ")
    assert said[5].endswith(" and 197 more.")


def test_message_counts_the_names_it_leaves_out_among_those_affected_now() -> None:
    """Of 51 agents ten are named, though 207 were affected before."""
    page = _notices()[0]
    fewer = replace(page, incident=replace(page.incident, affected=51))
    assert " and 41 more." in text(fewer, Links())


def test_recovery_is_a_sentence() -> None:
    """By itself and by when, or only with its cause."""
    incident = _notices()[0].incident
    assert (
        describe_recovery(replace(incident, heals_at=1_790_000_600.0))
        == "automatic by 2026-09-21 14:23:20 UTC"
    )
    assert describe_recovery(replace(incident, stuck=True)) == "not automatic, proxy-1 must recover first"
    assert describe_recovery(replace(incident, stuck=True, cause=NO_TUNNEL)) == "needs action"


def test_payload_is_json_with_a_key_for_each_message() -> None:
    """Receivers deduplicate by it."""
    page, resolve = (json.loads(json.dumps(payload(notice, _LINKS))) for notice in _notices())
    assert page["key"] != resolve["key"]
    assert page["incident"]["id"] == resolve["incident"]["id"]
    assert (page["incident"]["affected"], resolve["incident"]["peak"]) == (207, 207)


def test_trial_is_marked_as_one() -> None:
    """Nobody takes it for an incident."""
    assert make_test_notification("ops", 5.0).kind is NotificationKind.TEST
    assert "test" in subject(make_test_notification("ops", 5.0))


def test_durations_read_well() -> None:
    """Seconds, minutes, hours, days."""
    assert [format_duration(s) for s in (45, 720, 14_400, 11_100, 200_000, 259_200)] == [
        "45 s",
        "12 min",
        "4 h",
        "3 h 5 min",
        "2 d 7 h",
        "3 d",
    ]


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        (CauseKind.AUTH, "auth-1", "/agents/?state=stranded&state=at_risk&auth=auth-1"),
        (CauseKind.BACKEND, "default", "/agents/?state=stranded&state=at_risk"),
        (CauseKind.FLEET, "rate", "/agents/?state=stranded&state=offline&state=at_risk"),
        (CauseKind.FLEET, "excess", "/agents/?state=excess"),
        (CauseKind.FLEET, "drift", "/agents/"),
        (CauseKind.CLUSTER, "default", "/agents/"),
    ],
)
def test_list_of_agents_shows_those_that_the_incident_counts(kind: CauseKind, name: str, path: str) -> None:
    """Agents with excess tunnels are neither stranded nor at risk."""
    assert agents_path(Cause(kind, name, name)) == path


@pytest.mark.parametrize("error", ["deadline exceeded", "getsockopt(SO_ERROR): reset", "reset by peer (104)"])
def test_headline_leaves_out_the_error_of_an_instance(error: str) -> None:
    """A name that fits a pager, whatever brackets the error has."""
    watch = Watch()
    watch.run(15, stranded(207))
    incident = watch.incidents[PROXY.key]
    sick = replace(
        incident, sentence=f"proxy-1 does not answer: the last two attempts failed (127.0.0.1:1: {error})."
    )
    assert headline(sick) == "proxy-1 does not answer: the last two attempts failed"
