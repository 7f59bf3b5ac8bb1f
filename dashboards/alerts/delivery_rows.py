"""Rows of the delivery log."""

from __future__ import annotations

from typing import Any

from dashboards.shared.presenters import age_ms_of, to_moment_or_none
from fleet.models.alerting import Delivery

#: Shown instead of the address, or of an error that may contain it, of a channel of the whole installation.
HIDDEN_CHANNEL_TEXT = "hidden: the channel belongs to the whole installation"


def delivery_row_of(row: Delivery, now: float, *, is_limited_user: bool) -> dict[str, Any]:
    """Return one row of the delivery log.

    `is_limited_user`: the user is limited to some clusters. Errors of channels of the whole installation are then
    hidden, because they may contain the address.
    """
    channel, error = row.channel, row.last_error
    if error and is_limited_user and (channel is None or not channel.cluster):
        error = HIDDEN_CHANNEL_TEXT
    if row.sent_at is not None:
        state, at = "sent", row.sent_at
    elif row.failed_at is not None:
        state, at = "failed", row.failed_at
    elif (row.leased_until or 0.0) > now:
        state, at = "sending", row.next_attempt_at
    else:
        state, at = "waiting", row.next_attempt_at
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
        "delay_reason": row.delay_reason,
        "key": row.key,
    }
