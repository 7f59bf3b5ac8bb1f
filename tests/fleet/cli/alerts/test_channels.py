from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console

_CHANNEL: dict[str, Any] = {
    "number": 3, "cluster": "", "name": "ops", "kind": "webhook", "destination": "https://hooks.example.com/…",
    "values": {}, "has_secrets": {"url": True, "signing_key": False}, "is_enabled": True, "send_resolved": True,
    "digest": "", "per_minute": 10, "allow_private": False, "usages": ["Everything"], "unsent_count": 2,
    "last_attempt": {"state": "sent", "is_test": True, "detail": "ok", "at": None}, "version": "v1",
}  # fmt: skip
_PATH = "/api/v1/channels"


def _run(console: FakeConsole, *arguments: str, stdin: str = "") -> Result:
    command = ["channels", *arguments, "--url", console.url, "--token", TOKEN]
    return CliRunner().invoke(main, command, input=stdin)


def _attempt(state: str, detail: str = "") -> dict[str, Any]:
    return _CHANNEL | {"last_attempt": {"state": state, "is_test": True, "detail": detail, "at": None}}


def test_channels_are_listed_and_shown() -> None:
    """With their destination and what is stored, never a secret."""
    with run_console() as console:
        console.responses[_PATH] = (200, {"channels": [_CHANNEL]})
        assert "sent (test): ok" in _run(console, "list").output
        output = _run(console, "show", "ops").output
        console.responses[_PATH] = (200, {"channels": []})
        assert _run(console, "list").output == "no notification channels\n"
    assert [line.split() for line in output.splitlines() if line.startswith(("url", "signing"))] == [
        ["url", "stored"], ["signing_key", "not", "set"],
    ]  # fmt: skip


def test_channel_is_added_with_a_secret_from_standard_input() -> None:
    """Plain values are on the command line."""
    with run_console() as console:
        console.responses[_PATH] = (201, _CHANNEL | {"route": None, "routing": "No route uses it yet."})
        outcome = _run(
            console, "add", "ops", "--kind", "webhook", "--secret", "url=-", "--value", "note=x", "--digest", "never",
            "--no-resolved", "--scope", "cluster", stdin="https://hooks.example.com/s3cret\n",
        )  # fmt: skip
    assert outcome.output == (
        "channel 3 added: ops, https://hooks.example.com/…\n"
        "No route uses it yet. Use `refloat routes add --channel 3`.\n"
    )
    assert console.posts[0][1] == {
        "name": "ops", "kind": "webhook", "scope": "cluster", "digest": "", "send_resolved": False,
        "values": {"note": "x", "url": "https://hooks.example.com/s3cret"},
    }  # fmt: skip


def test_delivery_log_is_listed_and_a_notification_is_sent_again() -> None:
    """Filters are sent, a channel by its number; the last line names the next page."""
    delivery = {
        "number": 9, "incident": 12, "kind": "firing", "subject": "CRIT default: 3 agents stranded", "channel": 3,
        "channel_name": "ops", "state": "failed", "created_at": "2026-11-27T03:00:00Z", "attempts": 4,
        "attempted_at": "2026-11-27T03:20:05.5Z", "next_attempt_at": None, "delay_reason": "", "error": "404: no hook",
        "key": "k",
    }  # fmt: skip
    with run_console() as console:
        console.responses[_PATH] = (200, {"channels": [_CHANNEL]})
        path = "/api/v1/deliveries?incident=12&state=failed&limit=1&channel=3"
        console.responses[path] = (200, {"deliveries": [delivery], "next": "9"})
        output = _run(
            console, "deliveries", "--channel", "ops", "--incident", "12", "--state", "failed", "--limit", "1"
        ).output
        console.responses["/api/v1/deliveries?limit=50"] = (200, {"deliveries": [], "next": None})
        assert _run(console, "deliveries").output == "no notifications\n"
        console.responses["/api/v1/deliveries/9/resend"] = (200, delivery)
        resent = _run(console, "resend", "9").output
    assert "2026-11-27 03:20:05" in output
    assert "404: no hook" in output
    assert output.endswith("Older notifications: add --cursor 9\n")
    assert resent == "notification 9 to ops is sent again: CRIT default: 3 agents stranded\n"


def test_first_channel_names_its_route() -> None:
    """And the command that changes the route."""
    with run_console() as console:
        console.responses[_PATH] = (201, _CHANNEL | {"route": 7, "routing": "It was added to the route All."})
        output = _run(console, "add", "ops", "--kind", "email").output
    assert output.endswith("\nIt was added to the route All. Use `refloat routes change 7`.\n")


def test_channel_is_changed_with_the_version_that_was_read() -> None:
    """Only what is given is sent."""
    with run_console() as console:
        console.responses[_PATH] = (200, {"channels": [_CHANNEL]})
        console.responses[f"{_PATH}/3"] = (200, _CHANNEL)
        assert "changed: ops" in _run(console, "change", "ops", "--disable", "--per-minute", "5").output
        assert console.posts[0][1] == {"version": "v1", "is_enabled": False, "per_minute": 5}
        assert "nothing to change" in _run(console, "change", "3").output


@pytest.mark.parametrize(
    ("attempt", "exit_code", "text"),
    [
        (_attempt("sent", "200 OK"), 0, "channel ops: sent (test): 200 OK"),
        (_attempt("failed", "404: no such hook"), 2, "the test of channel ops failed: 404: no such hook"),
    ],
)
def test_test_waits_for_the_outcome(attempt: dict[str, Any], exit_code: int, text: str) -> None:
    """And shows what the receiver said."""
    with run_console() as console:
        console.responses[_PATH] = (200, {"channels": [_CHANNEL]})
        console.responses[f"{_PATH}/3/test"] = (200, _attempt("sending"))
        console.responses[f"{_PATH}/3"] = (200, attempt)
        outcome = _run(console, "test", "ops")
        assert (outcome.exit_code, text in outcome.output) == (exit_code, True)
        assert "was not sent within 0 s" in _run(console, "test", "ops", "--wait", "0").output


def test_deletion_is_confirmed_with_what_it_affects() -> None:
    """Without a terminal it needs the flag."""
    with run_console() as console:
        console.responses[_PATH] = (200, {"channels": [_CHANNEL]})
        console.responses[f"{_PATH}/3/delete"] = (200, {"number": 3, "name": "ops", "unsent_count": 2})
        refusal = _run(console, "delete", "ops")
        assert refusal.exit_code == 2
        assert "It is used by Everything. 2 notifications will not be sent. Add --yes" in refusal.output
        assert not console.posts
        assert _run(console, "delete", "ops", "--yes").output == "channel 3 deleted: ops\n"
