"""Checks of notification channels: their secrets, their last attempts and rate limits, and links in notifications."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleet.management.doctor.findings import CheckFinding, error, format_count, ok, skip, warning
from fleet.models.alerting import Channel, Delivery
from fleet.models.sealed_secrets import UnsealError, unseal
from fleet.protocol.durations import format_clock_time


@dataclass(frozen=True, slots=True)
class ChannelFacts:
    """An enabled channel and its newest attempt."""

    name: str
    kind: str
    can_unseal: bool
    #: Error of the newest attempt; empty if it succeeded, or if there was none.
    last_error: str = ""
    unsent_count: int = 0
    #: The receiver accepts nothing before this time, seconds since the epoch.
    rate_limited_until: float | None = None


def read_channels() -> list[ChannelFacts]:
    """Return the enabled channels. Raises DatabaseError."""
    return [_read_channel(row) for row in Channel.objects.filter(enabled=True)]


def check_channels(channels: Sequence[ChannelFacts], public_url: str, now: float) -> Iterator[CheckFinding]:
    """Yield the findings of the enabled channels."""
    if not channels:
        yield skip("channel-deliveries", "There are no enabled notification channels.")
        return
    yield check_public_url(public_url, len(channels))
    yield from _check_secrets(channels)
    yield from _check_deliveries(channels)
    yield from _check_rate_limits(channels, now)


def check_public_url(public_url: str, channel_count: int) -> CheckFinding:
    """Return whether links in notifications lead to the console."""
    if public_url:
        return ok("public-url", f"Links in notifications lead to {public_url}.")
    return warning(
        "public-url",
        f"REFLOAT_PUBLIC_URL is not set, but there {'is' if channel_count == 1 else 'are'} "
        f"{format_count(channel_count, 'notification channel')}: links in notifications lead to the "
        "address that `refloat serve` listens on, and with separate services they are missing.",
        "Set REFLOAT_PUBLIC_URL to the URL that users open, such as https://console.example.com/.",
    )


def _check_secrets(channels: Sequence[ChannelFacts]) -> Iterator[CheckFinding]:
    unreadable_channels = [channel for channel in channels if not channel.can_unseal]
    for channel in unreadable_channels:
        yield error(
            "channel-secrets",
            f"The secrets of channel {channel.name} ({channel.kind}) were encrypted with another secret key.",
            "Restore REFLOAT_SECRET_KEY or REFLOAT_HOME/secret_key, or enter the secrets of the channel again.",
        )
    if not unreadable_channels:
        yield ok("channel-secrets", "The secrets of all channels can be read.")


def _check_deliveries(channels: Sequence[ChannelFacts]) -> Iterator[CheckFinding]:
    failing_channels = [channel for channel in channels if channel.last_error]
    for channel in failing_channels:
        unsent = ""
        if channel.unsent_count:
            verb = "waits" if channel.unsent_count == 1 else "wait"
            unsent = f", and {format_count(channel.unsent_count, 'notification')} {verb}"
        yield error(
            "channel-deliveries",
            f"The last attempt to send to channel {channel.name} ({channel.kind}) failed{unsent}: "
            f"{channel.last_error.rstrip('.')}.",
            "Correct the channel on the page Notification channels, and send a test notification.",
        )
    if not failing_channels:
        yield ok("channel-deliveries", "No channel failed in its last attempt.")


def _check_rate_limits(channels: Sequence[ChannelFacts], now: float) -> Iterator[CheckFinding]:
    has_problem = False
    for channel in channels:
        until = channel.rate_limited_until
        if until is None or until <= now:
            continue
        has_problem = True
        yield warning(
            "channel-rate-limits",
            f"The receiver of channel {channel.name} ({channel.kind}) limits the rate of requests until "
            f"{format_clock_time(until)}.",
            "Send fewer notifications to it: group incidents, or raise the limit at the receiver.",
        )
    if not has_problem:
        yield ok("channel-rate-limits", "No receiver limits the rate of requests.")


def _read_channel(row: Channel) -> ChannelFacts:
    deliveries = Delivery.objects.filter(channel=row)
    newest = deliveries.exclude(attempted_at=None).order_by("-attempted_at", "-pk").first()
    return ChannelFacts(
        name=row.name,
        kind=row.kind,
        can_unseal=_can_unseal(row.secrets),
        last_error=newest.last_error if newest is not None and newest.sent_at is None else "",
        unsent_count=deliveries.filter(sent_at=None, failed_at=None).count(),
        rate_limited_until=row.rate_limited_until,
    )


def _can_unseal(ciphertext: str) -> bool:
    try:
        unseal(ciphertext)
    except UnsealError:
        return False
    return True
