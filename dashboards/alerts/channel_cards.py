"""Cards of notification channels: destination, routes, and the last outcome."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from dashboards.alerts.delivery_rows import HIDDEN_CHANNEL_TEXT
from dashboards.fleet.failing_channels import describe_failing
from dashboards.shared.owners import format_owner
from dashboards.shared.presenters import age_ms_of, to_moment_or_none
from fleet.alerts import setup_actions
from fleet.alerts.channels import Receipt
from fleet.alerts.channels.kind import ChannelKind
from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.alerts.setup.channels import unseal_or_empty
from fleet.models.access import audit_log_clusters_of
from fleet.models.alerting import Channel, Delivery
from fleet.vocabulary.incidents import NotificationKind


@dataclass(frozen=True, slots=True)
class ChannelOutcome:
    """How the newest attempt to send to a channel ended, or that it has not ended yet."""

    #: `untested`, `sending`, `sent` or `failed`.
    state: str
    is_test: bool = False
    #: The error, or the response of the receiver.
    detail: str = ""
    at: datetime | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ChannelCard:
    """A channel on the page."""

    row: Channel
    #: `Webhook, signed`.
    kind_label: str
    owner: str
    can_change: bool
    destination: str
    #: Names of routes, escalations and digests that use the channel.
    usages: list[str]
    #: The same as a sentence, which says so if no route uses the channel.
    usage_sentence: str
    outcome: ChannelOutcome
    unsent_count: int
    #: Since when it has been failing, and how many notifications wait; empty: its newest attempt did not fail.
    failing_notice: str


def make_channel_card(
    row: Channel, cluster: str, now: float, writable_owners: Collection[str], *, is_limited_user: bool
) -> ChannelCard:
    """Return the card of a channel; limited users see no address and no error of the installation's channels."""
    deliveries = Delivery.objects.filter(channel=row)
    is_hidden = is_limited_user and not row.cluster
    usages = describe_channel_usage(row, cluster)
    visible_deliveries = deliveries.filter(
        cluster__in=audit_log_clusters_of(cluster, is_limited_user=is_limited_user)
    )
    kind, unsent_count = (
        CHANNEL_KINDS.get(row.kind),
        visible_deliveries.filter(sent_at=None, failed_at=None).count(),
    )
    return ChannelCard(
        row,
        row.kind if kind is None else f"{kind.label}{_describe_signature(row, kind)}",
        format_owner(row.cluster),
        row.cluster in writable_owners,
        HIDDEN_CHANNEL_TEXT if is_hidden else setup_actions.describe_destination(row),
        usages,
        describe_usages(usages, row.digest),
        _read_outcome(deliveries, now, is_hidden=is_hidden),
        unsent_count,
        "" if row.failing_since is None else describe_failing(row.name, row.failing_since, unsent_count, now),
    )


def _describe_signature(row: Channel, kind: ChannelKind) -> str:
    """Return whether the requests of a channel are signed; empty: its kind has no signing key."""
    if all(field.key != "signing_key" for field in kind.fields):
        return ""
    return ", signed" if unseal_or_empty(row.secrets).get("signing_key") else ", unsigned"


def _read_outcome(deliveries: QuerySet[Delivery], now: float, *, is_hidden: bool) -> ChannelOutcome:
    """Return the outcome of the newest attempt; a test that was just requested counts as an attempt."""
    newest = deliveries.exclude(attempted_at=None).order_by("-attempted_at", "-pk").first()
    pending_test = (
        deliveries.filter(kind=NotificationKind.TEST.value, attempts=0, sent_at=None, failed_at=None)
        .order_by("-pk")
        .first()
    )
    if pending_test is not None:
        return ChannelOutcome(
            "sending",
            is_test=True,
            detail=pending_test.delay_reason,
            at=to_moment_or_none(pending_test.created_at),
            age_ms=age_ms_of(pending_test.created_at, now),
        )
    if newest is None:
        return ChannelOutcome("untested")
    has_failed = newest.sent_at is None
    return ChannelOutcome(
        "failed" if has_failed else "sent",
        is_test=newest.kind == NotificationKind.TEST.value,
        detail=""
        if is_hidden
        else newest.last_error
        if has_failed
        else _describe_receipt(newest.receipt or {}),
        at=to_moment_or_none(newest.attempted_at),
        age_ms=age_ms_of(newest.attempted_at, now),
    )


def _describe_receipt(receipt: Receipt) -> str:
    """Return the response to an accepted notification; empty without a text."""
    if "target" in receipt:
        return f"posted in {receipt['target']}"
    return str(receipt.get("response", ""))


def describe_channel_usage(row: Channel, cluster: str | None = None) -> list[str]:
    """Return the routes, escalations and digest that use a channel: in one cluster, or in all without `cluster`."""
    owners = None if cluster is None else ("", cluster)
    usages = [
        route_row.name for route_row in row.routes.all() if owners is None or route_row.cluster in owners
    ]
    usages += [
        f"escalation of {route_row.name}"
        for route_row in row.escalations.all()
        if owners is None or route_row.cluster in owners
    ]
    return [*usages, f"{row.digest} digest"] if row.digest else usages


def describe_usages(usages: Sequence[str], digest: str) -> str:
    """Return what uses a channel as a sentence; `digest`: that of the channel, which is one of the usages."""
    if not usages:
        return "No route uses it: it receives no notifications."
    if digest and len(usages) == 1:
        return f"No route uses it: it receives the {digest} digest only, and no notifications of incidents."
    return f"Used by {'; '.join(usages)}"


def describe_deletion(row: Channel) -> dict[str, Any]:
    """Return the effects of deleting a channel: routes that use it, and the number of unsent notifications."""
    unsent = Delivery.objects.filter(channel=row, sent_at=None, failed_at=None)
    return {"routes": describe_channel_usage(row), "unsent": unsent.count()}
