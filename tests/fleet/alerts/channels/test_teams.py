from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fleet.alerts.channels import SendError, SendRequest, teams
from fleet.alerts.channels.cards import Card
from fleet.alerts.notifications import NotificationLinks
from fleet.vocabulary.incidents import Cause, CauseKind, NotificationKind
from tests.fakes.post_server import PostAnswer
from tests.fakes.send_requests import LINKS, make_send_request
from tests.fakes.teams_webhook import TeamsWorkflow, render_markdown, run_teams


@pytest.fixture
def workflow() -> Iterator[TeamsWorkflow]:
    with run_teams() as server:
        yield server


def _request(
    workflow: TeamsWorkflow, kind: NotificationKind = NotificationKind.FIRING, **fields: Any
) -> SendRequest:
    return make_send_request(kind, secrets={"url": workflow.url}, **fields)


def test_notification_is_a_card_with_buttons(workflow: TeamsWorkflow) -> None:
    teams.send(_request(workflow))
    (card,) = workflow.cards
    assert card.texts[:2] == ("Critical: proxy-1 in cluster default", "207 agents stranded (proxy-1)")
    assert card.facts["Affected"] == "207 agents now, peak 207"
    assert card.buttons["Acknowledge"] == "https://console.example.com/incidents/7/?open=acknowledge"
    assert list(card.buttons) == ["Acknowledge", "Silence", "Open incident", "Runbook"]


@pytest.mark.parametrize("kind", NotificationKind)
def test_every_kind_of_notification_is_accepted(workflow: TeamsWorkflow, kind: NotificationKind) -> None:
    teams.send(_request(workflow, kind))
    assert len(workflow.cards) == 1


def test_card_without_a_public_url_has_no_buttons(workflow: TeamsWorkflow) -> None:
    teams.send(_request(workflow, links=NotificationLinks()))
    assert workflow.cards[0].buttons == {}


@pytest.mark.parametrize(
    "name",
    [
        "*bold*", "**bold**", "_it_", "proxy_1_a", "[x](http://evil.example)", "<http://evil.example|x>",
        "<https://evil.example>", "`code`", "~~x~~", "# heading", "- item", "+ item", "1. item", "12) item", "a\\*b",
        "{{DATE(2026-01-01T00:00:00Z)}}", "<!channel>", "![x](http://evil.example/x.png)", "> quote", "-", "a - b",
    ],
)  # fmt: skip
def test_names_are_shown_literally(name: str) -> None:
    """Nothing is formatted or linked."""
    assert render_markdown(teams.escape_markdown(name)) == name
    message = teams.message_of(Card(name, name, facts=(("Cause", name),)))
    body = message["attachments"][0]["content"]["body"]
    texts = [body[0]["text"], body[1]["text"], body[2]["facts"][0]["value"]]
    assert [render_markdown(text) for text in texts] == [name] * 3


def test_the_strict_view_marks_what_is_formatted() -> None:
    """Otherwise the test above would prove nothing."""
    assert render_markdown("**a** _b_ [c](http://d) `e`") == "⟦**a**⟧ ⟦_b_⟧ ⟦[c](http://d)⟧ ⟦`e`⟧"
    assert render_markdown("- a") == "⟦item⟧- a"
    assert render_markdown("{{DATE(2026-01-01T00:00:00Z)}}") == "⟦date⟧"


@pytest.mark.parametrize("count", [0, 1, 100_000])
@pytest.mark.parametrize("name", ["proxy-1", "\\" * 255, "𝄞" * 255, '"' * 255, "*" * 255])
def test_card_of_long_names_stays_below_28_kb(workflow: TeamsWorkflow, name: str, count: int) -> None:
    """Teams refuses larger ones. With long addresses and all buttons, in any script."""
    fields = {
        "cause": Cause(CauseKind.PROXY, "p", name),
        "summary": f"{name * 10} is not responding.",
        "affected_count": count,
        "peak_count": count,
        "agent_names": (name,) * min(count, 10),
        "acknowledged_by": "",
        "silenced_by": "",
    }
    links = NotificationLinks(
        f"https://console.example.com/{'x' * 900}",
        f"https://wiki.example.com/{'x' * 900}",
        7,
        ((f"Drain {name}", "/drain/"),),
    )
    teams.send(_request(workflow, incident_fields=fields, links=links))
    (card,) = workflow.cards
    assert f"{count:,} agent" in card.facts["Affected"]
    assert len(card.buttons) == 5


def test_long_digest_stays_below_28_kb(workflow: TeamsWorkflow) -> None:
    request = _request(workflow, NotificationKind.DIGEST, links=LINKS)
    text = "\n".join(f"- {'𝄞*' * 150} {number}" for number in range(60))
    teams.send(replace(request, payload={**request.payload, "text": text, "links": {}}))
    assert workflow.cards[0].texts[1].startswith("- 𝄞*𝄞*")


def test_errors_name_what_to_do(workflow: TeamsWorkflow) -> None:
    """What people can fix is retried."""

    def refusal_of(request: SendRequest) -> SendError:
        with pytest.raises(SendError) as error_info:
            teams.send(request)
        return error_info.value

    wrong_address = _request(workflow)
    wrong_address = replace(wrong_address, secrets={"url": f"{workflow.url}x"})
    assert "Copy the address of the workflow" in str(refusal_of(wrong_address))
    workflow.is_turned_off = True
    error = refusal_of(_request(workflow))
    assert "Turn it on in Power Automate" in str(error)
    assert not error.permanent
    workflow.is_turned_off = False
    workflow.is_deleted = True
    error = refusal_of(_request(workflow))
    assert "Create a new one in Teams" in str(error)
    assert not error.permanent
    for status in (400, 413):
        workflow.answers.append(PostAnswer(status, b"{}"))
        assert refusal_of(_request(workflow)).permanent
    workflow.answers.append(PostAnswer(429, b"", {"Retry-After": "60"}))
    assert refusal_of(_request(workflow)).retry_after_seconds == 60.0
    workflow.answers.append(PostAnswer(500, b"secret"))
    error = refusal_of(_request(workflow))
    assert str(error) == "Teams did not accept the card (status 500)"


def test_failure_with_status_200_is_an_error(workflow: TeamsWorkflow) -> None:
    """As webhooks of connectors answer."""
    workflow.answers.append(
        PostAnswer(
            200,
            b"Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429",
        )
    )
    with pytest.raises(SendError, match="did not accept the card") as error_info:
        teams.send(_request(workflow))
    assert not error_info.value.permanent
