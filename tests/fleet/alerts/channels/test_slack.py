from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fleet.alerts.channels import SendError, SendRequest, http, slack
from fleet.alerts.channels.cards import to_line
from fleet.alerts.notifications import NotificationLinks
from fleet.vocabulary.incidents import Cause, CauseKind, NotificationKind, Severity
from tests.fakes.post_server import PostAnswer
from tests.fakes.send_requests import LINKS, make_send_request
from tests.fakes.slack_api import (
    OPS_ID,
    TOKEN,
    SlackChannel,
    SlackWorkspace,
    make_rate_limit,
    make_refusal,
    run_slack,
)

#: Kinds that belong to an incident.
_INCIDENT_KINDS = [
    kind for kind in NotificationKind if kind not in (NotificationKind.TEST, NotificationKind.DIGEST)
]


@pytest.fixture
def workspace() -> Iterator[SlackWorkspace]:
    with run_slack() as server:
        yield server


def _request(
    workspace: SlackWorkspace,
    kind: NotificationKind = NotificationKind.FIRING,
    token: str = TOKEN,
    target: str = "#ops",
    **fields: Any,
) -> SendRequest:
    return make_send_request(
        kind, config={"url": workspace.api_url, "channel": target}, secrets={"token": token}, **fields
    )


def test_first_notification_posts_a_message(workspace: SlackWorkspace) -> None:
    """With title, headline, facts, agents, and buttons that open pages."""
    receipt = slack.send(_request(workspace))
    (message,) = workspace.ops.messages
    assert receipt == {"channel": OPS_ID, "ts": message.ts, "target": "#ops"}
    assert message.text == "CRIT default: 207 agents stranded (proxy-1)"
    view = message.view
    assert view.title == "Critical: proxy-1 in cluster default"
    assert view.texts[0] == "207 agents stranded (proxy-1)"
    assert view.facts["⟦Affected⟧"] == "207 agents now, peak 207"
    assert list(view.buttons) == ["Acknowledge", "Silence", "Open incident", "Runbook"]


@pytest.mark.parametrize("kind", NotificationKind)
def test_every_kind_of_notification_is_accepted(workspace: SlackWorkspace, kind: NotificationKind) -> None:
    """As the first of its incident, and as a later one."""
    receipt = slack.send(_request(workspace, kind))
    assert len(workspace.ops.messages) == 1
    if kind in _INCIDENT_KINDS:
        assert slack.send(_request(workspace, kind, earlier_receipt=receipt)) == receipt
        assert workspace.methods == ["chat.postMessage", "chat.update", "chat.postMessage"]
        (message,) = workspace.ops.messages
        assert message.edit_count == 1
        assert len(workspace.ops.thread_of(message)) == 1


def test_later_notifications_update_the_message_and_extend_its_thread(workspace: SlackWorkspace) -> None:
    """What somebody should act on is also shown in the channel: it begins with + here."""
    receipt = slack.send(_request(workspace))
    acknowledged_fields = {"acknowledged_at": 1_790_000_060.0, "acknowledged_by": "alice"}
    silenced_fields = {
        "silenced_by": "new disks (alice)", "silenced_until": 1_790_001_000.0, "silence_creator": "alice",
    }  # fmt: skip
    for kind, incident_fields in (
        (NotificationKind.WORSE, {"affected_count": 400}),
        (NotificationKind.UPDATE, {}),
        (NotificationKind.REPEAT, {}),
        (NotificationKind.ESCALATED, {}),
        (NotificationKind.ACKNOWLEDGED, acknowledged_fields),
        (NotificationKind.UNACKNOWLEDGED, {}),
        (NotificationKind.SILENCED, silenced_fields),
        (NotificationKind.SILENCE_ENDS, silenced_fields),
        (NotificationKind.UNSILENCED, {}),
        (NotificationKind.SEVERITY, {"severity": Severity.WARNING}),
        (NotificationKind.FLAPPING, {}),
        (NotificationKind.RESOLVED, {}),
    ):
        request = _request(workspace, kind, incident_fields=incident_fields, earlier_receipt=receipt)
        assert slack.send(request) == receipt
    (message,) = workspace.ops.messages
    assert message.edit_count == 12
    assert message.view.title == "Resolved: proxy-1 in cluster default"
    assert message.text.startswith("RESOLVED default: proxy-1 after")
    assert list(message.view.buttons) == ["Open incident", "Runbook"]
    headline = "207 agents stranded (proxy-1)"
    assert workspace.ops.thread_of(message) == [
        f"+CRIT (worse) default: {headline}",
        f"CRIT (more agents) default: {headline}",
        f"+CRIT (repeat) default: {headline}",
        f"+CRIT (not acknowledged) default: {headline}",
        "alice acknowledged the incident.",
        "The acknowledgement was removed.",
        "Silenced until 14:30 UTC by alice: new disks",
        f"+SILENCE ENDS SOON default: {headline}",
        "The silence ended.",
        f"The severity is now warning: {headline}.",
        "FLAPPING default: proxy-1 - further state changes are not sent one by one",
        "RESOLVED default: proxy-1 after 1 min 34 s, peak 207 agents",
    ]


def test_acknowledged_message_names_who_acknowledged(workspace: SlackWorkspace) -> None:
    receipt = slack.send(_request(workspace))
    fields = {"acknowledged_at": 1_790_000_060.0, "acknowledged_by": "<!channel> alice"}
    slack.send(
        _request(workspace, NotificationKind.ACKNOWLEDGED, incident_fields=fields, earlier_receipt=receipt)
    )
    (message,) = workspace.ops.messages
    assert message.view.facts["⟦State⟧"] == "Firing, acknowledged by <!channel> alice"
    assert "Acknowledge" not in message.view.buttons
    assert workspace.ops.thread_of(message) == ["<!channel> alice acknowledged the incident."]


def test_deleted_message_is_posted_anew(workspace: SlackWorkspace) -> None:
    """Also if the app may not change it, or the Slack channel is another one now."""
    receipt = slack.send(_request(workspace))
    workspace.ops.delete(workspace.ops.messages[0])
    new_receipt = slack.send(_request(workspace, NotificationKind.WORSE, earlier_receipt=receipt))
    (message,) = workspace.ops.messages
    assert new_receipt == {"channel": OPS_ID, "ts": message.ts, "target": "#ops"}
    assert workspace.ops.thread_of(message) == []
    for code in ("cant_update_message", "edit_window_closed", "channel_not_found"):
        workspace.answers.append(make_refusal(code))
        slack.send(_request(workspace, NotificationKind.WORSE, earlier_receipt=new_receipt))
    assert len(workspace.ops.messages) == 4


def test_message_in_another_slack_channel_is_not_updated(workspace: SlackWorkspace) -> None:
    """Somebody changed the Slack channel: the new one gets a message of its own."""
    workspace.channels["C0000000002"] = SlackChannel("net")
    receipt = slack.send(_request(workspace))
    new_receipt = slack.send(
        _request(workspace, NotificationKind.UPDATE, target="#net", earlier_receipt=receipt)
    )
    assert new_receipt is not None
    assert new_receipt["channel"] == "C0000000002"
    assert workspace.ops.messages[0].edit_count == 0


def test_retried_old_notification_does_not_overwrite_a_newer_one(workspace: SlackWorkspace) -> None:
    """It is only added to the thread."""
    receipt = slack.send(_request(workspace, NotificationKind.WORSE))
    slack.send(_request(workspace, NotificationKind.UPDATE, earlier_receipt=receipt, is_outdated=True))
    (message,) = workspace.ops.messages
    assert message.edit_count == 0
    assert len(workspace.ops.thread_of(message)) == 1
    workspace.answers.append(make_refusal("thread_not_found"))
    slack.send(_request(workspace, NotificationKind.UPDATE, earlier_receipt=receipt, is_outdated=True))
    assert len(workspace.ops.messages) == 2


def test_channel_without_threads_gets_updates_and_what_somebody_should_act_on(
    workspace: SlackWorkspace,
) -> None:
    """An escalation that only changes an old message would not be noticed."""
    workspace.ops.allows_threads = False
    receipt = slack.send(_request(workspace))
    assert slack.send(_request(workspace, NotificationKind.UPDATE, earlier_receipt=receipt)) == receipt
    assert [message.edit_count for message in workspace.ops.messages] == [1]
    escalation_receipt = slack.send(_request(workspace, NotificationKind.ESCALATED, earlier_receipt=receipt))
    assert [message.edit_count for message in workspace.ops.messages] == [2, 0]
    assert escalation_receipt is not None
    assert escalation_receipt["ts"] == workspace.ops.messages[1].ts


def test_errors_that_people_can_fix_are_retried(workspace: SlackWorkspace) -> None:
    """Each error names what to do; the same notification is accepted afterwards."""
    request = _request(workspace)

    def refusal_of(request: SendRequest) -> str:
        with pytest.raises(SendError) as error_info:
            slack.send(request)
        assert not error_info.value.permanent
        return str(error_info.value)

    workspace.revoked_tokens.add(TOKEN)
    assert "the token was revoked" in refusal_of(request)
    workspace.revoked_tokens.clear()
    assert "does not accept the token" in refusal_of(_request(workspace, token="xoxb-other"))
    workspace.scopes_by_token[TOKEN] = {"channels:read"}
    assert "Add the scope chat:write" in refusal_of(request)
    workspace.scopes_by_token[TOKEN] = {"chat:write"}
    assert "channel was not found" in refusal_of(_request(workspace, target="#other"))
    workspace.ops.is_member = False
    assert "not a member" in refusal_of(request)
    workspace.ops.is_member = True
    workspace.ops.is_archived = True
    assert "archived" in refusal_of(request)
    workspace.ops.is_archived = False
    slack.send(request)
    assert len(workspace.ops.messages) == 1


def test_rate_limit_carries_the_time_to_wait(workspace: SlackWorkspace) -> None:
    """As status 429 with Retry-After, and as an error with status 200."""
    workspace.answers += [
        make_rate_limit("45"),
        PostAnswer(429, b"", {"Retry-After": "7"}),
        make_refusal("rate_limited"),
    ]
    for seconds in (45.0, 7.0, 30.0):
        with pytest.raises(SendError, match="limits the rate") as error_info:
            slack.send(_request(workspace))
        assert error_info.value.retry_after_seconds == seconds


@pytest.mark.parametrize(
    "answer",
    [
        PostAnswer(200, b"<html><title>Sign in</title></html>"),
        PostAnswer(200, b""),
        PostAnswer(200, b"[" * 100_000),
        PostAnswer(200, b'{"ok": true}'),
        PostAnswer(200, b'{"ok": "false", "error": "secret"}'),
        PostAnswer(200, b"ok"),
        PostAnswer(502, b"Bad gateway"),
        PostAnswer(302, b"", {"Location": "https://example.com/"}),
    ],
    ids=["html", "empty", "deep", "no ts", "text", "plain", "gateway", "redirect"],
)
def test_answer_of_another_service_is_retried_and_not_shown(
    workspace: SlackWorkspace, answer: PostAnswer
) -> None:
    workspace.answers.append(answer)
    with pytest.raises(SendError, match=r"not one of Slack's API\. Check the Slack API URL") as error_info:
        slack.send(_request(workspace))
    assert not error_info.value.permanent
    assert "secret" not in str(error_info.value)


def test_slow_answer_ends_after_the_timeout(
    workspace: SlackWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 0.2)
    release_event = threading.Event()
    workspace.before_answer = lambda: (release_event.wait(20), None)[1]
    with pytest.raises(SendError, match=r"no response within 0\.2 s"):
        slack.send(_request(workspace))
    release_event.set()


@pytest.mark.parametrize("count", [0, 1, 100_000])
@pytest.mark.parametrize("name", ["proxy-1", "<!channel> *x* `y` :fire:", "&" * 255, "𝄞" * 255, "\\" * 255])
def test_names_and_numbers_of_any_size_are_shown(workspace: SlackWorkspace, name: str, count: int) -> None:
    """Literally, unless they are too long."""
    fields = {
        "cause": Cause(CauseKind.PROXY, "p", name),
        "summary": f"{count} agents stranded because {name} is not responding.",
        "affected_count": count,
        "peak_count": max(count, 1),
        "agent_names": (name,) * min(count, 10),
    }
    links = NotificationLinks(LINKS.console_url, LINKS.runbook_url, 7, ((f"Drain {name}", "/drain/"),))
    receipt = slack.send(_request(workspace, incident_fields=fields, links=links))
    slack.send(
        _request(
            workspace, NotificationKind.WORSE, incident_fields=fields, links=links, earlier_receipt=receipt
        )
    )
    (message,) = workspace.ops.messages
    assert f"{count:,} agent" in message.view.facts["⟦Affected⟧"]
    if len(name) < 30:
        assert name in message.view.title
        assert name in message.view.texts[0]
        assert f"Drain {name}" in message.view.buttons
        assert name in workspace.ops.thread_of(message)[0]
        assert count == 0 or name in message.view.texts[1]
    assert to_line(name)[:50] in message.view.texts[0]


def test_message_without_a_public_url_has_no_buttons(workspace: SlackWorkspace) -> None:
    slack.send(_request(workspace, links=NotificationLinks()))
    assert workspace.ops.messages[0].view.buttons == {}


def test_long_digest_is_accepted(workspace: SlackWorkspace) -> None:
    request = _request(workspace, NotificationKind.DIGEST)
    text = "Open:\n" + "\n".join(f"- <{'&' * 300}> {number}" for number in range(60))
    slack.send(replace(request, payload={**request.payload, "text": text, "links": {}}))
    assert workspace.ops.messages[0].view.texts[0].startswith("Open:\n- <&&&")


@pytest.mark.parametrize("text", ["xoxb-1-2-abc", "xoxe.xoxb-1-abc"])
def test_bot_tokens_are_valid(text: str) -> None:
    slack.check_token(text)


@pytest.mark.parametrize(
    "text", ["xoxp-1-2-abc", "nonsense", "xoxb-a b", "xoxb-a\r\nX: y", "https://hooks.slack.com/"]
)
def test_other_tokens_are_refused(text: str) -> None:
    with pytest.raises(SendError, match="begins with xoxb-"):
        slack.check_token(text)


@pytest.mark.parametrize("text", ["#ops", "#équipe_réseau-1", "C0123456789", "G0123456789"])
def test_names_and_ids_of_slack_channels_are_valid(text: str) -> None:
    slack.check_slack_channel(text)


@pytest.mark.parametrize("text", ["ops", "#", "# ops", "#a,#b", "@alice", "#" + "x" * 81])
def test_other_slack_channels_are_refused(text: str) -> None:
    with pytest.raises(SendError, match="the id of a Slack channel"):
        slack.check_slack_channel(text)
