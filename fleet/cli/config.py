"""`refloat config`: the networking config of a cluster through its console, planned before it is written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from fleet.changes.networking.plan import format_count, format_range
from fleet.cli import api, plan_and_confirm
from fleet.cli.answers import pair, prints, table
from fleet.cli.console import console_options
from fleet.protocol import durations
from fleet.protocol.networking import config_yaml


@click.group()
def config() -> None:
    """Read and change a cluster's networking config through its console.

    A change is planned first: how many tunnels will close, of whom, where and when. KEY is as in YAML, or its last
    part. Without a console, `refloat fleet config` speaks to the auths themselves.
    """


def _format_config(response: dict[str, Any]) -> str:
    return config_yaml.to_yaml(config_yaml.from_document(response["document"], strict=False)).removesuffix("\n")


@config.command("get")
@console_options
@prints(_format_config)
def get_command(console: api.Console, cluster: str) -> Any:
    """Print the networking config as the console last read it."""
    return console.get("/networking-config", cluster=cluster)


def _format_history(response: dict[str, Any]) -> str:
    rows = [
        (revision["revision"], _format_moment(revision["at"]), revision["who"] or "elsewhere", revision["reason"])
        for revision in response["revisions"]
    ]
    return table(("revision", "since", "by", "why"), rows)


@config.command("history")
@console_options
@prints(_format_history)
def history_command(console: api.Console, cluster: str) -> Any:
    """List its revisions, the present one first."""
    return console.get("/networking-config/revisions", cluster=cluster)


@config.command("set")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@console_options
@plan_and_confirm.change_options
def set_command(console: api.Console, cluster: str, values: tuple[str, ...], **change_options: Any) -> None:
    """Plan a change of some fields, ask, and have it written."""
    _plan_and_run(console, cluster, {"fields": dict(pair(text, "KEY=VALUE") for text in values)}, **change_options)


@config.command("revert")
@click.argument("revision")
@console_options
@plan_and_confirm.change_options
def revert_command(console: api.Console, cluster: str, revision: str, **change_options: Any) -> None:
    """Plan going back to an old revision, ask, and have it written."""
    _plan_and_run(console, cluster, {"revision": revision}, **change_options)


@config.command("undo")
@click.argument("change_id", metavar="CHANGE", type=int)
@console_options
@plan_and_confirm.change_options
def undo_command(console: api.Console, cluster: str, change_id: int, **change_options: Any) -> None:
    """Plan what was there before a change, by its number, on what others wrote since; ask, and have it written."""
    change = plan_and_confirm.plan_undo(console, cluster, change_id)
    plan_and_confirm.run_change(console, cluster, change, format_plan(change["plan"]), **change_options)


def _format_log(response: dict[str, Any]) -> str:
    rows = [
        (_format_moment(entry["at"]), entry["who"], entry["action"], entry["outcome"], entry["reason"] or entry["detail"])
        for entry in response["entries"]
    ]
    return table(("at", "who", "what", "outcome", "why"), rows)


@config.command("log")
@console_options
@click.option("--search", metavar="WORDS", default="", help="Only entries with these words.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@prints(_format_log)
def log_command(console: api.Console, cluster: str, search: str, limit: int) -> Any:
    """List who tried to change what, newest first."""
    return console.get("/audit", {"q": search, "limit": limit}, cluster=cluster)


def _plan_and_run(console: api.Console, cluster: str, body: Mapping[str, Any], **change_options: Any) -> None:
    base = console.get("/networking-config", cluster=cluster)["revision"]
    change = plan_and_confirm.plan_change(console, cluster, "/networking-config/plan", body, base)
    plan_and_confirm.run_change(console, cluster, change, format_plan(change["plan"]), **change_options)


def format_plan(plan: Mapping[str, Any]) -> list[str]:
    """A plan in lines."""
    lines = []
    closing = plan.get("closing")
    if closing is not None:
        lines.append(f"rule: {closing['rule_label']} (now: {plan['rule_before']})")
        lines.append(
            f"closes {format_count(closing['closes'], 'tunnel')} of {format_count(closing['agents'], 'agent')}: "
            f"{format_range(closing['excess'])} too many, {format_range(closing['expired'])} to expired proxies; "
            f"{format_range(closing['carrying'])} carry user connections; {closing['left_with_one']} agents keep one"
        )
        for step in closing["steps"]:
            earliest, latest = (durations.format_seconds(step[end]) for end in ("earliest", "latest"))
            step_text = f"  closing {step['nth']} of an agent: {step['tunnels']}"
            lines.append(f"{step_text}, from {earliest} to {latest} after the change")
        lines += [
            f"  {proxy['name']}: {proxy['before']} tunnels, then {format_range(proxy['after'])}"
            for proxy in closing["proxies"]
        ]
    lines += plan["notes"]
    if "age" in plan:
        lines.append(f"over data {plan['age']} s old, of {plan['size']} agents")
    return lines


def _format_moment(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S")
