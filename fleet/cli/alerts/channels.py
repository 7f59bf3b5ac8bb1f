"""`refloat channels`: list, show, add, change, test and delete notification channels; their delivery log."""

from __future__ import annotations

import time
from typing import Any

import click

from fleet.cli import api
from fleet.cli.alerts.settings import (
    confirm,
    drop_missing,
    find_setting,
    parse_values,
    read_secrets,
    require_change,
    scope_option,
    yes_option,
)
from fleet.cli.console import console_options
from fleet.cli.output import Failure, format_table, prints_response
from fleet.nodes.shared.options import combine

#: How often the outcome of a test is read, seconds.
_TEST_READ_INTERVAL = 0.5

_channel_options = combine(
    click.option(
        "--value", "pairs", multiple=True, metavar="FIELD=TEXT",
        help="Value of the kind that is not secret, such as to=ops@example.com. Repeat for several.",
    ),
    click.option(
        "--secret", "secret_pairs", multiple=True, metavar="FIELD=SOURCE",
        help="Secret value, such as url=env:HOOK_URL, url=file:PATH or url=- (standard input). Repeat for several.",
    ),
    click.option("--digest", type=click.Choice(["daily", "weekly", "never"]), help="Period of digests."),
    click.option("--per-minute", type=int, help="Rate limit, notifications per minute."),
    click.option(
        "--resolved/--no-resolved", "send_resolved", default=None, help="Whether to send resolved notifications."
    ),
    click.option(
        "--allow-private/--no-allow-private", default=None,
        help="Whether to allow private and loopback addresses. Requires manage_access.",
    ),
)  # fmt: skip


def _format_channels(channels: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(str(channel["number"]), channel["name"], channel["kind"], channel["destination"]),
            *(channel["cluster"] or "all", "enabled" if channel["is_enabled"] else "disabled"),
            *(_format_attempt(channel["last_attempt"]), "; ".join(channel["usages"]) or "no route"),
        )
        for channel in channels
    ]
    headings = ("number", "name", "kind", "destination", "cluster", "state", "last attempt", "used by")
    return format_table(headings, rows) if rows else "no notification channels"


def _format_attempt(attempt: dict[str, Any]) -> str:
    test = " (test)" if attempt["is_test"] else ""
    detail = f": {attempt['detail']}" if attempt["detail"] else ""
    return f"{attempt['state']}{test}{detail}"


def _format_channel(channel: dict[str, Any]) -> str:
    rows = [
        ("number", str(channel["number"])),
        ("name", channel["name"]),
        ("kind", channel["kind"]),
        ("cluster", channel["cluster"] or "all"),
        ("state", "enabled" if channel["is_enabled"] else "disabled"),
        ("destination", channel["destination"]),
        *sorted(channel["values"].items()),
        *(
            (field, "stored" if is_stored else "not set")
            for field, is_stored in channel["has_secrets"].items()
        ),
        ("resolved notifications", "sent" if channel["send_resolved"] else "not sent"),
        ("digest", channel["digest"] or "never"),
        ("rate limit", f"{channel['per_minute']} per minute"),
        ("private addresses", "allowed" if channel["allow_private"] else "not allowed"),
        ("used by", "; ".join(channel["usages"]) or "no route"),
        ("last attempt", _format_attempt(channel["last_attempt"])),
    ]
    return format_table(("field", "value"), rows)


def _format_added_channel(channel: dict[str, Any]) -> str:
    summary = f"channel {channel['number']} added: {channel['name']}, {channel['destination']}"
    number, route = channel["number"], channel["route"]
    command = f"add --channel {number}" if route is None else f"change {route}"
    return f"{summary}\n{channel['routing']} Use `refloat routes {command}`."


@click.group()
def channels() -> None:
    """Manage notification channels, to which routes send incidents."""


@channels.command("list")
@console_options
@prints_response(_format_channels)
def list_channels(console: api.ConsoleClient, cluster: str) -> Any:
    """List notification channels."""
    return console.get("/channels", cluster=cluster)["channels"]


@channels.command()
@click.argument("channel")
@console_options
@prints_response(_format_channel)
def show(console: api.ConsoleClient, cluster: str, channel: str) -> Any:
    """Show a channel by number or name. Its secrets are never shown."""
    return find_setting(console, cluster, "channels", "Channel", channel)


@channels.command()
@click.argument("name")
@click.option(
    "--kind", required=True,
    help="email, slack, slack-webhook, teams, pagerduty, webhook, alertmanager or apprise.",
)  # fmt: skip
@_channel_options
@scope_option
@console_options
@prints_response(_format_added_channel)
def add(
    console: api.ConsoleClient,
    cluster: str,
    name: str,
    kind: str,
    scope: str,
    pairs: tuple[str, ...],
    secret_pairs: tuple[str, ...],
    **options: Any,
) -> Any:
    """Add a notification channel.

    The first channel is added to the root route, which takes all warnings and critical incidents; `refloat routes
    change` changes that. To notify another one, use `refloat routes add`.

    Example: refloat channels add ops --kind webhook --secret url=env:HOOK_URL
    """
    body = {
        "name": name,
        "kind": kind,
        "scope": scope,
        "values": parse_values(pairs) | read_secrets(secret_pairs),
        **_options_of(**options),
    }
    return console.post("/channels", body, cluster=cluster)


@channels.command()
@click.argument("channel")
@click.option("--name", help="New name.")
@click.option("--enable/--disable", "is_enabled", default=None, help="Whether to send notifications.")
@_channel_options
@console_options
@prints_response(
    lambda channel: f"channel {channel['number']} changed: {channel['name']}, {channel['destination']}"
)
def change(
    console: api.ConsoleClient,
    cluster: str,
    channel: str,
    name: str | None,
    is_enabled: bool | None,
    pairs: tuple[str, ...],
    secret_pairs: tuple[str, ...],
    **options: Any,
) -> Any:
    """Change a channel by number or name. Values and secrets that are left out stay."""
    row = find_setting(console, cluster, "channels", "Channel", channel)
    body = {
        "version": row["version"],
        **drop_missing(name=name, is_enabled=is_enabled),
        **_options_of(**options),
    }
    if values := parse_values(pairs) | read_secrets(secret_pairs):
        body["values"] = values
    require_change(body)
    return console.post(f"/channels/{row['number']}", body, cluster=cluster)


@channels.command()
@click.argument("channel")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=30.0, show_default=True, metavar="SECONDS",
    help="Longest time to wait for the outcome.",
)  # fmt: skip
@console_options
@prints_response(lambda channel: f"channel {channel['name']}: {_format_attempt(channel['last_attempt'])}")
def test(console: api.ConsoleClient, cluster: str, channel: str, wait: float) -> Any:
    """Send a test notification to a channel, and show the response of the receiver."""
    row = find_setting(console, cluster, "channels", "Channel", channel)
    path = f"/channels/{row['number']}"
    row = console.post(f"{path}/test", {}, cluster=cluster)
    deadline = time.monotonic() + wait
    while row["last_attempt"]["state"] == "sending" and time.monotonic() < deadline:
        time.sleep(_TEST_READ_INTERVAL)
        row = console.get(path, cluster=cluster)
    if row["last_attempt"]["state"] == "failed":
        raise Failure(f"the test of channel {row['name']} failed: {row['last_attempt']['detail']}")
    if row["last_attempt"]["state"] == "sending":
        raise Failure(
            f"the test of channel {row['name']} was not sent within {wait:g} s. Check that `manage.py alerts` runs; "
            f"`refloat channels show {row['number']}` shows the outcome"
        )
    return row


@channels.command()
@click.argument("channel")
@yes_option
@console_options
def delete(console: api.ConsoleClient, cluster: str, channel: str, is_confirmed: bool) -> None:
    """Delete a channel by number or name. The delivery log is kept."""
    row = find_setting(console, cluster, "channels", "Channel", channel)
    usages = f" It is used by {'; '.join(row['usages'])}." if row["usages"] else ""
    unsent = f" {row['unsent_count']} notifications will not be sent." if row["unsent_count"] else ""
    confirm(f"Delete channel {row['name']}?{usages}{unsent}", is_confirmed=is_confirmed)
    console.post(f"/channels/{row['number']}/delete", {}, cluster=cluster)
    click.echo(f"channel {row['number']} deleted: {row['name']}")


def _format_deliveries(response: dict[str, Any]) -> str:
    rows = [
        (
            *(str(delivery["number"]), _format_delivery_time(delivery), delivery["channel_name"]),
            *(delivery["kind"], delivery["state"], str(delivery["attempts"])),
            "" if delivery["incident"] is None else str(delivery["incident"]),
            delivery["subject"],
            delivery["error"] or delivery["delay_reason"],
        )
        for delivery in response["deliveries"]
    ]
    headings = (
        *("number", "time (UTC)", "channel", "kind", "state", "attempts", "incident", "subject"),
        "last error",
    )
    table = format_table(headings, rows) if rows else "no notifications"
    cursor = response["next"]
    return table if cursor is None else f"{table}\nOlder notifications: add --cursor {cursor}"


def _format_delivery_time(delivery: dict[str, Any]) -> str:
    """Return the last attempt, or without one when the notification was due, to the second."""
    text: str = delivery["attempted_at"] or delivery["created_at"]
    return text[:19].replace("T", " ")


@channels.command()
@click.option("--channel", metavar="CHANNEL", help="Only notifications to this channel, by number or name.")
@click.option(
    "--incident", type=click.IntRange(min=1), metavar="INCIDENT", help="Only notifications of this incident."
)
@click.option(
    "--state", type=click.Choice(["sent", "failed", "waiting"]), help="Only notifications in this state."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Maximum number of notifications.",
)
@click.option("--cursor", metavar="CURSOR", help="Continue after the previous page, which names its cursor.")
@console_options
@prints_response(_format_deliveries)
def deliveries(
    console: api.ConsoleClient,
    cluster: str,
    channel: str | None,
    incident: int | None,
    state: str | None,
    limit: int,
    cursor: str | None,
) -> Any:
    """List notifications in the delivery log, newest first: with channel, time and outcome.

    \b
    refloat channels deliveries --state failed
    refloat channels deliveries --incident 12 --channel ops
    """
    query = drop_missing(incident=incident, state=state, limit=limit, cursor=cursor)
    if channel is not None:
        query["channel"] = find_setting(console, cluster, "channels", "Channel", channel)["number"]
    return console.get("/deliveries", query, cluster=cluster)


def _format_resent(delivery: dict[str, Any]) -> str:
    return f"notification {delivery['number']} to {delivery['channel_name']} is sent again: {delivery['subject']}"


@channels.command()
@click.argument("delivery", type=click.IntRange(min=1))
@console_options
@prints_response(_format_resent)
def resend(console: api.ConsoleClient, cluster: str, delivery: int) -> Any:
    """Send a failed notification again, by its number in the delivery log."""
    return console.post(f"/deliveries/{delivery}/resend", {}, cluster=cluster)


def _options_of(
    *, digest: str | None, per_minute: int | None, send_resolved: bool | None, allow_private: bool | None
) -> dict[str, Any]:
    """Return the fields of the API for the flags that were given."""
    return drop_missing(
        digest="" if digest == "never" else digest,
        per_minute=per_minute,
        send_resolved=send_resolved,
        allow_private=allow_private,
    )
