"""`refloat changes`: what others planned or began, of every kind: agree to it, watch it, call it off."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli import api, plan_and_confirm
from fleet.cli.answers import prints, table
from fleet.cli.console import asks_console

_id = click.argument("change_id", metavar="CHANGE", type=int)


@click.group()
def changes() -> None:
    """See what is changed on a cluster, agree to it, watch it, or call it off.

    Plans are made by `refloat config`, `refloat policies` and `refloat reconnect`.
    """


def _changes(found: dict[str, Any]) -> str:
    rows = [(str(one["id"]), one["kind"], one["state"], one["who"], one["title"]) for one in found["changes"]]
    text = table(("change", "kind", "state", "by", "what"), rows) if rows else "nothing was changed yet"
    return f"{text}\n{found['busy']}" if found["busy"] else text


@changes.command("list")
@asks_console
@prints(_changes)
def list_command(console: api.Console, cluster: str) -> Any:
    """List the newest changes, and who has the cluster now."""
    return console.get("/changes", cluster=cluster)


@changes.command("confirm")
@_id
@asks_console
@plan_and_confirm.agreeing
def confirm_command(console: api.Console, cluster: str, change_id: int, **how: Any) -> None:
    """Agree to a plan that was made before, and watch it. --plan, or a no, cancels it."""
    plan_and_confirm.carry_out(
        console, cluster, console.get(f"/changes/{change_id}", cluster=cluster), [], **how
    )


def _state(change: dict[str, Any]) -> str:
    return f"{change['title']}: {change['state']}"


@changes.command("approve")
@_id
@asks_console
@prints(_state)
def approve_command(console: api.Console, cluster: str, change_id: int) -> Any:
    """Agree as the second person, where the cluster asks for one."""
    return plan_and_confirm.tell(
        console, cluster, console.get(f"/changes/{change_id}", cluster=cluster), "approve"
    )


@changes.command("cancel")
@_id
@asks_console
@prints(_state)
def cancel_command(console: api.Console, cluster: str, change_id: int) -> Any:
    """Call it off: what was done stays done."""
    return plan_and_confirm.tell(
        console, cluster, console.get(f"/changes/{change_id}", cluster=cluster), "cancel"
    )


@changes.command("watch")
@_id
@asks_console
@click.option("--verify", is_flag=True, help="Until what came of it was held against the plan, too.")
@prints(plan_and_confirm.line)
def watch_command(console: api.Console, cluster: str, change_id: int, verify: bool) -> Any:
    """Tell how far it is until it is over."""
    return plan_and_confirm.watch(console, cluster, f"/changes/{change_id}", verify=verify)
