"""`refloat config`: the networking config of a cluster through its console, planned before it is written."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from fleet.cli import api
from fleet.cli.answers import Failure, show_json, table
from fleet.cli.console import asks_console
from fleet.domain.networking_plan import counted, said
from fleet.protocol import durations, networking_yaml

#: How long a worker may take to write it, seconds; it goes on without us.
_PATIENCE = 60.0
_LOOK_EVERY = 0.5
_UNDER_WAY = {"confirmed", "running"}

_json = click.option("--json", "as_json", is_flag=True, help="Print the API's answer.")
_reason = click.option("--reason", default="", help="Why; kept in the log. Asked for when it is not given.")
_yes = click.option("--yes", is_flag=True, help="Do not ask. Above 100 agents say --typed too.")
_typed = click.option(
    "--typed", default="", metavar="CLUSTER", help="The cluster's name, where it is asked for."
)
_plan_only = click.option("--plan", "plan_only", is_flag=True, help="Only show what it would do.")


@click.group()
def config() -> None:
    """Read and change a cluster's networking config through its console.

    A change is planned first: how many tunnels will close, of whom, where and when. KEY is as in YAML, or its last
    part. Without a console, `refloat fleet config` speaks to the auths themselves.
    """


@config.command("get")
@asks_console
@_json
def get_command(console: api.Console, cluster: str, as_json: bool) -> None:
    """Print the networking config as the console last read it."""
    found = console.get("/networking-config", cluster=cluster)
    if as_json:
        show_json(found)
        return
    resource = networking_yaml.from_document(found["document"], strict=False)
    click.echo(networking_yaml.to_yaml(resource), nl=False)


@config.command("history")
@asks_console
@_json
def history_command(console: api.Console, cluster: str, as_json: bool) -> None:
    """List its revisions, the present one first."""
    found = console.get("/networking-config/revisions", cluster=cluster)
    if as_json:
        show_json(found)
        return
    rows = [
        (one["revision"], _moment(one["at"]), one["who"] or "elsewhere", one["reason"])
        for one in found["revisions"]
    ]
    click.echo(table(("revision", "since", "by", "why"), rows))


@config.command("set")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@asks_console
@_reason
@_yes
@_typed
@_plan_only
@_json
def set_command(console: api.Console, cluster: str, values: tuple[str, ...], **how: Any) -> None:
    """Plan a change of some fields, ask, and have it written."""
    _change(console, cluster, {"fields": dict(_pair(text) for text in values)}, **how)


@config.command("revert")
@click.argument("revision")
@asks_console
@_reason
@_yes
@_typed
@_plan_only
@_json
def revert_command(console: api.Console, cluster: str, revision: str, **how: Any) -> None:
    """Plan going back to an old revision, ask, and have it written."""
    _change(console, cluster, {"revision": revision}, **how)


@config.command("log")
@asks_console
@click.option("--search", metavar="WORDS", default="", help="Only entries with these words.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@_json
def log_command(console: api.Console, cluster: str, search: str, limit: int, as_json: bool) -> None:
    """List who tried to change what, newest first."""
    found = console.get("/audit", {"q": search, "limit": limit}, cluster=cluster)
    if as_json:
        show_json(found)
        return
    rows = [
        (_moment(one["at"]), one["who"], one["action"], one["outcome"], one["reason"] or one["detail"])
        for one in found["entries"]
    ]
    click.echo(table(("at", "who", "what", "outcome", "why"), rows))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise Failure(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def _change(
    console: api.Console,
    cluster: str,
    wanted: Mapping[str, Any],
    *,
    reason: str,
    yes: bool,
    typed: str,
    plan_only: bool,
    as_json: bool,
) -> None:
    base = console.get("/networking-config", cluster=cluster)["revision"]
    headers = {"If-Match": f'"{base}"', "Idempotency-Key": secrets.token_hex(8)}
    change = console.post("/networking-config/plan", wanted, cluster=cluster, headers=headers)
    here = f"/changes/{change['id']}"
    if not as_json:
        click.echo(f"{change['title']}\n{told(change['plan'])}", err=not plan_only)
    if plan_only:
        if as_json:
            show_json(change)
        console.post(f"{here}/cancel", {}, cluster=cluster)
        return
    if not yes:
        if not click.confirm(change["question"], err=True):
            console.post(f"{here}/cancel", {}, cluster=cluster)
            raise Failure("nothing was changed")
        if change["asks_typed"] and not typed:
            typed = click.prompt("Type the cluster's name", err=True)
        reason = reason or click.prompt("Why", err=True)
    console.post(f"{here}/confirm", {"reason": reason, "typed": typed}, cluster=cluster)
    ended = _await(console, cluster, here)
    if as_json:
        show_json(ended)
    else:
        click.echo(f"{ended['state']}: {ended['detail']}")
    if ended["state"] == "failed":
        raise Failure(f"change {ended['id']} failed")


def _await(console: api.Console, cluster: str, here: str) -> Any:
    """Wait until it was written, or somebody else must agree first."""
    until = time.monotonic() + _PATIENCE
    while True:
        change = console.get(here, cluster=cluster)
        waits = change["state"] == "confirmed" and change["asks_second"] and not change["approved_by"]
        if waits:
            return {**change, "detail": "waits for a second person"}
        if change["state"] not in _UNDER_WAY or time.monotonic() > until:
            return change
        time.sleep(_LOOK_EVERY)


def told(plan: Mapping[str, Any]) -> str:
    """A plan in a terminal."""
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
    return "\n".join(lines)


def _moment(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S")
