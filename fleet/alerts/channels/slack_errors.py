"""Slack's error codes as sentences that say how to fix the problem. Pure.

https://docs.slack.dev/reference/methods/chat.postMessage, chat.update, and "Sending messages using incoming webhooks".
Whatever an operator can fix in Slack or at the channel is retried, so nothing is lost if it is fixed within a day.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fleet.alerts.channels import SendError

#: Seconds to wait if Slack limits the rate and does not say for how long.
_DEFAULT_RETRY_AFTER_SECONDS = 30.0
_RATE_LIMIT_CODES = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
#: `chat.update`: there is no message any more that could be changed.
MISSING_MESSAGE_CODES = frozenset(
    {
        "message_not_found",
        "cant_update_message",
        "edit_window_closed",
        "channel_not_found",
        "is_inactive",
        "block_mismatch",
    }
)
#: The channel does not allow replies in threads.
NO_THREAD_CODES = frozenset({"restricted_action_non_threadable_channel", "cannot_reply_to_message"})
#: Anything else in a response is not shown: a wrong address could be an internal service.
_CODE = re.compile(r"[a-z][a-z0-9_]{0,79}")
_SCOPE = re.compile(r"[a-z][a-z.:_,]{0,99}")

_NEW_TOKEN = "Copy the bot token from “OAuth & Permissions” of the Slack app, and enter it at this channel"  # noqa: S105 - a sentence
_NEW_WEBHOOK = (
    "Create a new one under “Incoming Webhooks” of the Slack app, and enter its address at this channel"
)
_WORKSPACE_ADMIN = "Ask an administrator of the Slack workspace"
_SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        "not_authed": f"Slack received no token. {_NEW_TOKEN}",
        "invalid_auth": f"Slack does not accept the token. {_NEW_TOKEN}",
        "token_revoked": f"the token was revoked. Reinstall the Slack app. {_NEW_TOKEN}",
        "token_expired": f"the token has expired. Turn off token rotation of the Slack app. {_NEW_TOKEN}",
        "account_inactive": f"the Slack app or its workspace was removed. Reinstall the app. {_NEW_TOKEN}",
        "not_allowed_token_type": f"Slack does not accept this type of token. {_NEW_TOKEN}",
        "not_in_channel": "the Slack app is not a member of the Slack channel. Type “/invite @” and the name of the "
        "app in that channel",
        "channel_not_found": "the Slack channel was not found. Check its name or id at this channel. If it is "
        "private, invite the app to it",
        "is_archived": "the Slack channel is archived. Unarchive it, or enter another one at this channel",
        "missing_scope": "the Slack app is not allowed to post. Add the scope {needed} under “OAuth & Permissions” of "
        "the app, and reinstall the app",
        "no_permission": "the Slack app is not allowed to post to the Slack channel. Invite the app to it",
        "restricted_action": f"a preference of the workspace forbids the app to post. {_WORKSPACE_ADMIN}",
        "restricted_action_read_only_channel": "the Slack channel is read-only. Allow the app to post there, or enter "
        "another channel",
        "restricted_action_thread_only_channel": "the Slack channel allows only replies in threads. Enter "
        "another channel",
        "ekm_access_denied": f"administrators have suspended posting of messages. {_WORKSPACE_ADMIN}",
        "access_denied": f"Slack denies access to the channel. {_WORKSPACE_ADMIN}",
        "team_access_not_granted": f"the token is not valid for this workspace. {_NEW_TOKEN}",
        "accesslimited": f"Slack allows this app only from certain IP addresses. {_WORKSPACE_ADMIN}",
        "enterprise_is_restricted": f"the Slack organization does not allow this app. {_WORKSPACE_ADMIN}",
        "two_factor_setup_required": f"the app's account needs two-factor authentication. {_WORKSPACE_ADMIN}",
        "org_login_required": "the workspace is being migrated. Slack accepts messages when the migration is complete",
        "team_added_to_org": "the workspace is being migrated. Slack accepts messages when the migration is complete",
        "internal_error": "Slack has an internal error",
        "fatal_error": "Slack has an internal error",
        "service_unavailable": "Slack is not available",
        "request_timeout": "Slack did not receive the whole request",
        "update_failed": "Slack could not update the message",
        # Of incoming webhooks.
        "invalid_token": f"the webhook was revoked. {_NEW_WEBHOOK}",
        "no_service": f"the webhook was removed or disabled. {_NEW_WEBHOOK}",
        "no_active_hooks": "the webhook is disabled. Enable “Incoming Webhooks” of the Slack app",
        "no_service_id": "the address of the webhook is not complete. Copy it again from “Incoming Webhooks”",
        "no_team": "the workspace of the webhook was not found. Copy the address again from “Incoming Webhooks”",
        "team_disabled": "the Slack workspace is disabled",
        "channel_is_archived": "the Slack channel is archived. Unarchive it, or create a webhook for another one",
        "action_prohibited": f"the workspace forbids the webhook to post there. {_WORKSPACE_ADMIN}",
        "posting_to_general_channel_denied": f"the webhook must not post to the general channel. {_WORKSPACE_ADMIN}",
        "user_not_found": "the user of the webhook does not exist any more. Create a new webhook",
        "rollup_error": "Slack has an internal error",
    }
)
#: The message itself is wrong: another attempt would send the same one.
_PERMANENT_SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("msg_too_long", "msg_blocks_too_long", "too_many_attachments"),
            "the message is too long for Slack",
        ),
        **dict.fromkeys(
            (
                "invalid_blocks",
                "invalid_blocks_format",
                "invalid_payload",
                "invalid_arguments",
                "invalid_arg_name",
                "invalid_array_arg",
                "invalid_charset",
                "invalid_form_data",
                "invalid_json",
                "json_not_object",
                "invalid_post_type",
                "missing_post_type",
                "missing_charset",
                "missing_text_or_fallback_or_attachments",
                "no_text",
            ),
            "Slack rejected the format of the message",
        ),
    }
)


class SlackError(SendError):
    """Slack did not accept a request; `code` is the error of the response."""

    def __init__(self, code: str, needed_scope: str = "", retry_after_seconds: float | None = None) -> None:
        self.code = code
        if code in _RATE_LIMIT_CODES:
            retry_after_seconds = retry_after_seconds or _DEFAULT_RETRY_AFTER_SECONDS
            sentence = "Slack limits the rate of messages"
        elif code in _PERMANENT_SENTENCES:
            sentence = f"{_PERMANENT_SENTENCES[code]}. Report this as a bug of Refloat"
        else:
            sentence = _SENTENCES.get(code, "Slack did not accept the message")
        super().__init__(
            f"{sentence.format(needed=needed_scope or 'chat:write')} ({code})",
            permanent=code in _PERMANENT_SENTENCES,
            retry_after_seconds=retry_after_seconds,
        )


def error_of_response(document: Mapping[str, Any], retry_after_seconds: float | None = None) -> SlackError:
    """Return the error of a response with `"ok": false`."""
    code, needed_scope = str(document.get("error", "")), str(document.get("needed", ""))
    return SlackError(
        code if _CODE.fullmatch(code) else "unknown_error",
        needed_scope if _SCOPE.fullmatch(needed_scope) else "",
        retry_after_seconds,
    )


def error_of_text(text: str, retry_after_seconds: float | None = None) -> SlackError | None:
    """Return the error of the response of an incoming webhook; None if it is not one that Slack documents."""
    code = text.strip()
    is_listed = code in _SENTENCES or code in _PERMANENT_SENTENCES or code in _RATE_LIMIT_CODES
    return SlackError(code, retry_after_seconds=retry_after_seconds) if is_listed else None
