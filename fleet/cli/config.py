"""`refloat config`: read and change the networking config of a cluster through its console."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from fleet.cli import api, plan_and_confirm
from fleet.cli.console import console_options
from fleet.cli.output import format_table, prints_response, split_pair
from fleet.cli.plan_text import format_config_forecast
from fleet.protocol.networking import config_yaml


@click.group()
def config() -> None:
    """Read and change the networking config of a cluster.

    Every change is previewed first: how many tunnels will close, of how many agents, on which proxies and when. KEY is
    a field as `get` prints it (tunnel_strategy.type), or its last part. Without a console, use `refloat fleet config`.
    """


def _format_config(response: dict[str, Any]) -> str:
    return config_yaml.to_yaml(config_yaml.from_document(response["document"], strict=False)).removesuffix(
        "\n"
    )


@config.command("get")
@console_options
@prints_response(_format_config)
def get_command(console: api.ConsoleClient, cluster: str) -> Any:
    """Print the networking config that the console last read."""
    return console.get("/networking-config", cluster=cluster)


def _format_history(response: dict[str, Any]) -> str:
    rows = [
        (
            revision["revision"],
            _format_moment(revision["at"]),
            revision["author"] or "outside Refloat",
            revision["reason"],
        )
        for revision in response["revisions"]
    ]
    return format_table(("revision", "since (UTC)", "author", "reason"), rows)


@config.command("history")
@console_options
@prints_response(_format_history)
def history_command(console: api.ConsoleClient, cluster: str) -> Any:
    """List the revisions of the config, the current one first."""
    return console.get("/networking-config/revisions", cluster=cluster)


def _format_forecast(response: dict[str, Any]) -> str:
    return "\n".join(format_config_forecast(response))


@config.command("forecast")
@click.argument("values", metavar="[KEY=VALUE]...", nargs=-1)
@console_options
@prints_response(_format_forecast)
def forecast_command(console: api.ConsoleClient, cluster: str, values: tuple[str, ...]) -> Any:
    """Forecast the effect of fields on tunnels, without a plan.

    Shows how many tunnels would close, of how many agents and when, which would stay open, and how many agents would
    open. Without KEY=VALUE it is the forecast of the current config. Nothing is stored; `set --dry-run` shows the plan
    of a change.
    """
    for text in values:
        split_pair(text, "KEY=VALUE")
    return console.get("/networking-config/forecast", {"field": values}, cluster=cluster)


@config.command("set")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@console_options
@plan_and_confirm.change_options
def set_command(
    console: api.ConsoleClient, cluster: str, values: tuple[str, ...], **change_options: Any
) -> None:
    """Change fields: preview, confirm, watch."""
    _plan_and_run(
        console, cluster, {"fields": dict(split_pair(text, "KEY=VALUE") for text in values)}, **change_options
    )


@config.command("revert")
@click.argument("revision")
@console_options
@plan_and_confirm.change_options
def revert_command(console: api.ConsoleClient, cluster: str, revision: str, **change_options: Any) -> None:
    """Restore an earlier revision: preview, confirm, watch."""
    _plan_and_run(console, cluster, {"revision": revision}, **change_options)


@config.command("undo")
@click.argument("change_id", metavar="CHANGE", type=int)
@console_options
@plan_and_confirm.change_options
def undo_command(console: api.ConsoleClient, cluster: str, change_id: int, **change_options: Any) -> None:
    """Undo a change by its number: preview, confirm, watch.

    Later changes of other fields are kept.
    """
    plan_and_confirm.plan_and_run_undo(console, cluster, change_id, **change_options)


def _format_audit_log(response: dict[str, Any]) -> str:
    rows = [
        (
            _format_moment(entry["at"]),
            entry["actor_name"],
            entry["action"],
            entry["outcome"],
            entry["reason"] or entry["detail"],
        )
        for entry in response["entries"]
    ]
    return format_table(("time (UTC)", "actor", "action", "outcome", "reason"), rows)


@config.command("audit-log")
@console_options
@click.option("--search", metavar="WORDS", default="", help="Only entries that contain these words.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of entries."
)
@prints_response(_format_audit_log)
def audit_log_command(console: api.ConsoleClient, cluster: str, search: str, limit: int) -> Any:
    """List the audit log of the cluster, newest entry first."""
    return console.get("/audit", {"q": search, "limit": limit}, cluster=cluster)


def _plan_and_run(
    console: api.ConsoleClient, cluster: str, body: Mapping[str, Any], **change_options: Any
) -> None:
    base_revision = console.get("/networking-config", cluster=cluster)["revision"]
    plan_and_confirm.plan_and_run(
        console, cluster, "/networking-config/plan", body, base_revision, **change_options
    )


def _format_moment(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S")
