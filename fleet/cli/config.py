"""`refloat config`: the networking config of a cluster through its console, planned before it is written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from fleet.changes.networking.plan import counted, said
from fleet.cli import api, plan_and_confirm
from fleet.cli.answers import pair, prints, table
from fleet.cli.console import asks_console
from fleet.protocol import durations
from fleet.protocol.networking import config_yaml


@click.group()
def config() -> None:
    """Read and change a cluster's networking config through its console.

    A change is planned first: how many tunnels will close, of whom, where and when. KEY is as in YAML, or its last
    part. Without a console, `refloat fleet config` speaks to the auths themselves.
    """


def _yaml(found: dict[str, Any]) -> str:
    return config_yaml.to_yaml(config_yaml.from_document(found["document"], strict=False)).removesuffix("\n")


@config.command("get")
@asks_console
@prints(_yaml)
def get_command(console: api.Console, cluster: str) -> Any:
    """Print the networking config as the console last read it."""
    return console.get("/networking-config", cluster=cluster)


def _history(found: dict[str, Any]) -> str:
    rows = [
        (one["revision"], _moment(one["at"]), one["who"] or "elsewhere", one["reason"])
        for one in found["revisions"]
    ]
    return table(("revision", "since", "by", "why"), rows)


@config.command("history")
@asks_console
@prints(_history)
def history_command(console: api.Console, cluster: str) -> Any:
    """List its revisions, the present one first."""
    return console.get("/networking-config/revisions", cluster=cluster)


@config.command("set")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@asks_console
@plan_and_confirm.agreeing
def set_command(console: api.Console, cluster: str, values: tuple[str, ...], **how: Any) -> None:
    """Plan a change of some fields, ask, and have it written."""
    _change(console, cluster, {"fields": dict(pair(text, "KEY=VALUE") for text in values)}, **how)


@config.command("revert")
@click.argument("revision")
@asks_console
@plan_and_confirm.agreeing
def revert_command(console: api.Console, cluster: str, revision: str, **how: Any) -> None:
    """Plan going back to an old revision, ask, and have it written."""
    _change(console, cluster, {"revision": revision}, **how)


@config.command("undo")
@click.argument("change_id", metavar="CHANGE", type=int)
@asks_console
@plan_and_confirm.agreeing
def undo_command(console: api.Console, cluster: str, change_id: int, **how: Any) -> None:
    """Plan what was there before a change, by its number, on what others wrote since; ask, and have it written."""
    change = plan_and_confirm.plan_undoing(console, cluster, change_id)
    plan_and_confirm.carry_out(console, cluster, change, told(change["plan"]), **how)


def _log(found: dict[str, Any]) -> str:
    rows = [
        (_moment(one["at"]), one["who"], one["action"], one["outcome"], one["reason"] or one["detail"])
        for one in found["entries"]
    ]
    return table(("at", "who", "what", "outcome", "why"), rows)


@config.command("log")
@asks_console
@click.option("--search", metavar="WORDS", default="", help="Only entries with these words.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@prints(_log)
def log_command(console: api.Console, cluster: str, search: str, limit: int) -> Any:
    """List who tried to change what, newest first."""
    return console.get("/audit", {"q": search, "limit": limit}, cluster=cluster)


def _change(console: api.Console, cluster: str, wanted: Mapping[str, Any], **how: Any) -> None:
    base = console.get("/networking-config", cluster=cluster)["revision"]
    change = plan_and_confirm.plan(console, cluster, "/networking-config/plan", wanted, base)
    plan_and_confirm.carry_out(console, cluster, change, told(change["plan"]), **how)


def told(plan: Mapping[str, Any]) -> list[str]:
    """A plan in lines."""
    lines = []
    closing = plan.get("closing")
    if closing is not None:
        lines.append(f"rule: {closing['rule_label']} (now: {plan['rule_before']})")
        lines.append(
            f"closes {counted(closing['closes'], 'tunnel')} of {counted(closing['agents'], 'agent')}: "
            f"{said(closing['excess'])} too many, {said(closing['expired'])} to expired proxies; "
            f"{said(closing['carrying'])} carry user connections; {closing['left_with_one']} agents keep one"
        )
        for step in closing["steps"]:
            earliest, latest = (durations.format_seconds(step[end]) for end in ("earliest", "latest"))
            which = f"  closing {step['nth']} of an agent: {step['tunnels']}"
            lines.append(f"{which}, from {earliest} to {latest} after the change")
        lines += [
            f"  {one['name']}: {one['before']} tunnels, then {said(one['after'])}"
            for one in closing["proxies"]
        ]
    lines += plan["notes"]
    if "age" in plan:
        lines.append(f"over data {plan['age']} s old, of {plan['size']} agents")
    return lines


def _moment(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S")
