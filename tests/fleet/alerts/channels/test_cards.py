from __future__ import annotations

import pytest

from fleet.alerts.channels.cards import Card, card_of, to_line, to_lines, truncate
from fleet.alerts.notifications import NotificationLinks
from fleet.vocabulary.incidents import IncidentState, NotificationKind
from tests.fakes.send_requests import LINKS, make_send_request


def test_card_has_state_numbers_cause_and_recovery() -> None:
    card = card_of(make_send_request(), names_event=False)
    assert card.title == "Critical: proxy-1 in cluster default"
    assert card.headline == "207 agents stranded (proxy-1)"
    assert dict(card.facts) == {
        "State": "Firing",
        "Affected": "207 agents now, peak 207",
        "Cause": "proxy-1",
        "Recovery": "The recovery time is not known.",
        "Opened": "2026-09-21 14:13:21 UTC, for 30 s",
    }
    assert card.agents.endswith("agent-8, agent-9 and 197 more")
    assert "Alert rules: Agents stranded" in card.footer
    assert card.tone == "critical"


def test_state_names_the_people_who_acted() -> None:
    """Who acknowledged and who silenced the incident, until when and why."""
    card = card_of(
        make_send_request(
            NotificationKind.SILENCED,
            incident_fields={
                "acknowledged_at": 1_790_000_060.0,
                "acknowledged_by": "bob",
                "silenced_by": "new disks (alice)",
                "silenced_until": 1_790_001_000.0,
                "silence_creator": "alice",
            },
        ),
        names_event=True,
    )
    assert dict(card.facts)["State"] == (
        "Firing, acknowledged by bob, silenced until 14:30 UTC by alice: new disks"
    )
    assert card.title == "Critical (silenced): proxy-1 in cluster default"
    assert [button.id for button in card.buttons] == ["incident", "runbook"]


def test_resolved_card_says_when_and_offers_no_actions() -> None:
    card = card_of(make_send_request(NotificationKind.RESOLVED), names_event=True)
    assert card.title == "Resolved: proxy-1 in cluster default"
    assert dict(card.facts)["State"].startswith("Resolved at 2026-09-21 14:")
    assert dict(card.facts)["Affected"] == "0 agents now, peak 207"
    assert "Recovery" not in dict(card.facts)
    assert card.agents.startswith("Previously affected agents: agent-0")
    assert (card.tone, [button.id for button in card.buttons]) == ("resolved", ["incident", "runbook"])


def test_buttons_open_pages_that_ask_for_the_action() -> None:
    """GET changes nothing: the page opens a dialog."""
    links = NotificationLinks(
        LINKS.console_url,
        LINKS.runbook_url,
        7,
        (("Drain proxy-1", "/drain/"), ("Reconnect agents", "/reconnect/")),
    )
    card = card_of(make_send_request(links=links), names_event=False)
    assert [(button.label, button.url) for button in card.buttons] == [
        ("Acknowledge", "https://console.example.com/incidents/7/?open=acknowledge"),
        ("Silence", "https://console.example.com/incidents/7/?open=silence"),
        ("Open incident", "https://console.example.com/incidents/7/"),
        ("Drain proxy-1", "https://console.example.com/drain/"),
        ("Runbook", "https://wiki.example.com/proxy"),
    ]


@pytest.mark.parametrize(
    "links", [NotificationLinks(), NotificationLinks("", "", 7, (("Drain", "/drain/"),))]
)
def test_card_without_a_public_url_has_no_buttons(links: NotificationLinks) -> None:
    assert card_of(make_send_request(links=links), names_event=False).buttons == ()


def test_test_notification_and_digest_have_their_own_cards() -> None:
    """A test is about no incident; a digest has sections, and its link is a button."""
    test_card = card_of(make_send_request(NotificationKind.TEST), names_event=True)
    assert (test_card.title, test_card.facts, test_card.buttons) == ("Test notification from Refloat", (), ())
    request = make_send_request(NotificationKind.DIGEST)
    payload = {
        **request.payload,
        "subject": "DAILY DIGEST default: 1 critical incident",
        "text": "Open:\n- proxy-1 is failing\nIncidents: https://console.example.com/incidents/\n",
        "links": {"Incidents": "https://console.example.com/incidents/"},
    }
    digest_card = card_of(type(request)(payload, request.key, request.at), names_event=True)
    assert digest_card == Card(
        "DAILY DIGEST default: 1 critical incident",
        body="Open:\n- proxy-1 is failing",
        footer=digest_card.footer,
        buttons=digest_card.buttons,
    )
    assert [button.url for button in digest_card.buttons] == ["https://console.example.com/incidents/"]


def test_payload_of_an_earlier_version_has_a_card() -> None:
    """It may wait in the outbox during an upgrade, and its channel may get another kind."""
    request = make_send_request()
    incident = {
        key: field_value
        for key, field_value in request.incident.items()
        if key not in ("recovery", "acknowledged_by", "silenced_by", "silenced_until", "silence")
    }
    incident["cause"] = {key: incident["cause"][key] for key in ("kind", "id", "name")}
    payload = {key: content for key, content in request.payload.items() if key != "actions"}
    card = card_of(
        type(request)({**payload, "incident": incident}, request.key, request.at), names_event=False
    )
    assert dict(card.facts)["Cause"] == "proxy-1"
    assert len(card.buttons) == 4


def test_fleet_wide_incident_is_named_after_its_cluster() -> None:
    """Its cause repeats the headline."""
    request = make_send_request()
    cause = {"kind": "fleet", "id": "rate", "name": "207 agents lost", "label": "no common cause"}
    payload = {**request.payload, "incident": {**request.incident, "cause": cause}}
    card = card_of(type(request)(payload, request.key, request.at), names_event=False)
    assert card.title == "Critical: cluster default"
    assert dict(card.facts)["Cause"] == "no common cause"


def test_recovering_incident_keeps_its_actions() -> None:
    card = card_of(
        make_send_request(incident_fields={"state": IncidentState.RECOVERING, "affected_count": 0}),
        names_event=False,
    )
    assert dict(card.facts)["State"] == "Recovering"
    assert dict(card.facts)["Recovery"] == "No agents are affected now."


def test_texts_are_printable_and_truncated() -> None:
    assert to_line(" a\u202eb\n\tc\x00 ") == "a b c"
    assert to_lines("a\r\nb\x1b[1m\n") == "a\nb [1m"
    assert truncate("abcdef", 6) == "abcdef"
    assert truncate("abcdefg", 6) == "abcde…"
