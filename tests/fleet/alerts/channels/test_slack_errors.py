from __future__ import annotations

import pytest

from fleet.alerts.channels.slack_errors import SlackError, error_of_response, error_of_text


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("invalid_auth", "Copy the bot token"),
        ("token_revoked", "Reinstall the Slack app"),
        ("account_inactive", "Reinstall the app"),
        ("not_in_channel", "/invite @"),
        ("channel_not_found", "Check its name or id"),
        ("is_archived", "Unarchive it"),
        ("missing_scope", "Add the scope chat:write"),
        ("restricted_action", "Ask an administrator"),
        ("internal_error", "internal error"),
        ("something_new", "did not accept the message (something_new)"),
    ],
)
def test_error_that_people_can_fix_is_retried_and_says_how(code: str, advice: str) -> None:
    """Nothing is lost if it is fixed within a day."""
    error = error_of_response({"ok": False, "error": code})
    assert advice in str(error)
    assert str(error).endswith(f"({code})")
    assert not error.permanent
    assert error.retry_after_seconds is None


@pytest.mark.parametrize(
    "code", ["msg_too_long", "msg_blocks_too_long", "invalid_blocks", "no_text", "invalid_arguments"]
)
def test_wrong_message_is_a_permanent_error(code: str) -> None:
    assert error_of_response({"ok": False, "error": code}).permanent


def test_missing_scope_names_what_slack_needs() -> None:
    error = error_of_response({"error": "missing_scope", "needed": "chat:write.public", "provided": "x"})
    assert "Add the scope chat:write.public under" in str(error)


def test_rate_limit_has_a_time_to_wait() -> None:
    """Slack's own, or 30 s."""
    assert error_of_response({"error": "ratelimited"}, 7.0).retry_after_seconds == 7.0
    assert error_of_response({"error": "rate_limited"}).retry_after_seconds == 30.0
    assert not error_of_response({"error": "ratelimited"}).permanent


@pytest.mark.parametrize("code", ["<b>internal</b>", "root:x:0:0", "A" * 200, None, {"a": 1}, ""])
def test_texts_of_other_services_are_not_shown(code: object) -> None:
    """A wrong API address could be an internal service."""
    error = error_of_response({"error": code, "needed": "password is 1234"})
    assert str(error) == "Slack did not accept the message (unknown_error)"


def test_webhook_errors_are_the_documented_ones() -> None:
    """Other texts are not errors of Slack."""
    error = error_of_text("channel_is_archived\n")
    assert isinstance(error, SlackError)
    assert "Unarchive it" in str(error)
    invalid = error_of_text("invalid_payload")
    assert invalid is not None
    assert invalid.permanent
    assert error_of_text("<html>not found</html>") is None
