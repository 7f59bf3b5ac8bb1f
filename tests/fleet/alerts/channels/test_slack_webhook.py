from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fleet.alerts.channels import SendError, SendRequest, slack_webhook
from fleet.alerts.notifications import NotificationLinks
from fleet.vocabulary.incidents import NotificationKind
from tests.fakes.post_server import PostAnswer
from tests.fakes.send_requests import make_send_request
from tests.fakes.slack_api import WEBHOOK_PATH, SlackWorkspace, run_slack


@pytest.fixture
def workspace() -> Iterator[SlackWorkspace]:
    with run_slack() as server:
        yield server


def _request(
    workspace: SlackWorkspace, kind: NotificationKind = NotificationKind.FIRING, **fields: Any
) -> SendRequest:
    return make_send_request(kind, secrets={"url": f"{workspace.url}{WEBHOOK_PATH}"}, **fields)


@pytest.mark.parametrize("kind", NotificationKind)
def test_each_notification_is_a_message(workspace: SlackWorkspace, kind: NotificationKind) -> None:
    slack_webhook.send(_request(workspace, kind))
    (message,) = workspace.ops.messages
    assert message.text
    assert message.view.title


def test_title_says_why_the_message_is_sent(workspace: SlackWorkspace) -> None:
    """There is no earlier message to compare it with."""
    slack_webhook.send(_request(workspace, NotificationKind.ESCALATED))
    assert workspace.ops.messages[0].view.title == "Critical (not acknowledged): proxy-1 in cluster default"
    slack_webhook.send(_request(workspace, links=NotificationLinks()))
    assert workspace.ops.messages[1].view.buttons == {}


def test_errors_name_what_to_do(workspace: SlackWorkspace) -> None:
    """What people can fix is retried."""
    workspace.ops.is_archived = True
    with pytest.raises(SendError, match="Unarchive it") as archive_info:
        slack_webhook.send(_request(workspace))
    workspace.webhooks.clear()
    with pytest.raises(SendError, match="Create a new one under “Incoming Webhooks”") as removal_info:
        slack_webhook.send(_request(workspace))
    assert not archive_info.value.permanent
    assert not removal_info.value.permanent
    for status, code, advice in (
        (403, b"invalid_token", "was revoked"),
        (403, b"action_prohibited", "Ask an administrator"),
        (404, b"channel_not_found", "was not found"),
        (404, b"no_team", "Copy the address again"),
        (500, b"rollup_error", "internal error"),
    ):
        workspace.answers.append(PostAnswer(status, code))
        with pytest.raises(SendError, match=advice) as error_info:
            slack_webhook.send(_request(workspace))
        assert not error_info.value.permanent
    workspace.answers.append(PostAnswer(400, b"invalid_payload"))
    with pytest.raises(SendError, match="rejected the format") as rejection_info:
        slack_webhook.send(_request(workspace))
    assert rejection_info.value.permanent


def test_rate_limit_carries_the_time_to_wait(workspace: SlackWorkspace) -> None:
    workspace.answers.append(PostAnswer(429, b"rate_limited", {"Retry-After": "12"}))
    with pytest.raises(SendError, match="limits the rate") as error_info:
        slack_webhook.send(_request(workspace))
    assert error_info.value.retry_after_seconds == 12.0


@pytest.mark.parametrize(
    "answer", [PostAnswer(200, b"<html>secret</html>"), PostAnswer(502, b"secret"), PostAnswer(204)]
)
def test_answer_of_another_service_is_retried_and_not_shown(
    workspace: SlackWorkspace, answer: PostAnswer
) -> None:
    workspace.answers.append(answer)
    with pytest.raises(SendError, match="not one of a Slack webhook") as error_info:
        slack_webhook.send(_request(workspace))
    assert not error_info.value.permanent
    assert "secret" not in str(error_info.value)
