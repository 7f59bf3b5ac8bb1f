"""Rows of the delivery log."""

from __future__ import annotations

from typing import Any

from dashboards.shared.presenters import age_ms_of, to_moment_or_none
from fleet.models.alerting import Channel, Delivery

#: Shown instead of the address, or of an error that may contain it, of a channel of the whole installation.
HIDDEN_CHANNEL_TEXT = "hidden: the channel belongs to the whole installation"


def delivery_row_of(row: Delivery, now: float, *, is_limited_user: bool) -> dict[str, Any]:
    """Return one row of the delivery log.

    `is_limited_user`: the user is limited to some clusters. Errors of channels of the whole installation are then
    hidden, because they may contain the address.
    """
    channel, error, delay_reason = row.channel, row.last_error, row.delay_reason
    if error and is_limited_user and (channel is None or not channel.cluster):
        error = HIDDEN_CHANNEL_TEXT
    at: float | None
    if row.sent_at is not None:
        state, at = "sent", row.sent_at
    elif row.failed_at is not None:
        state, at = "failed", row.failed_at
    elif (row.leased_until or 0.0) > now:
        state, at = "sending", row.next_attempt_at
    else:
        # What is due but not attempted is behind other notifications: the time says nothing then.
        state, at = "waiting", row.next_attempt_at if row.next_attempt_at > now else None
        if at is None and not row.attempts and channel is not None:
            delay_reason = _find_queue_reason(channel, now) or delay_reason
    return {
        "id": row.pk,
        "kind": row.kind,
        "subject": row.payload.get("subject", ""),
        "channel": f"{row.channel_name} (deleted)" if channel is None else channel.name,
        "state": state,
        "can_resend": state == "failed" and channel is not None,
        "at": to_moment_or_none(at),
        "age_ms": age_ms_of(at, now),
        "attempts": row.attempts,
        "error": error,
        "delay_reason": delay_reason,
        "key": row.key,
    }


def _find_queue_reason(channel: Channel, now: float) -> str:
    """Return why a channel does not send a notification that is due; empty: it soon does."""
    if not channel.enabled:
        return "the channel is disabled"
    is_limited = channel.rate_limited_until is not None and channel.rate_limited_until > now
    return "waits for earlier notifications of this channel" if is_limited or channel.failing_since else ""
