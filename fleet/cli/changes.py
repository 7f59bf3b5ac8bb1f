"""`refloat changes`: what others planned or began, of every kind: agree to it, watch it, call it off."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli import api, plan_and_confirm
from fleet.cli.answers import prints, table
from fleet.cli.console import console_options

_id = click.argument("change_id", metavar="CHANGE", type=int)


@click.group()
def changes() -> None:
    """See what is changed on a cluster, agree to it, watch it, or call it off.

    Plans are made by `refloat config`, `refloat policies` and `refloat reconnect`.
    """


def _format_changes(response: dict[str, Any]) -> str:
    rows = [(str(change["id"]), change["kind"], change["state"], change["who"], change["title"]) for change in response["changes"]]
    text = table(("change", "kind", "state", "by", "what"), rows) if rows else "nothing was changed yet"
    return f"{text}\n{response['busy']}" if response["busy"] else text


@changes.command("list")
@console_options
@prints(_format_changes)
def list_command(console: api.Console, cluster: str) -> Any:
    """List the newest changes, and who has the cluster now."""
    return console.get("/changes", cluster=cluster)


@changes.command("confirm")
@_id
@console_options
@plan_and_confirm.change_options
def confirm_command(console: api.Console, cluster: str, change_id: int, **change_options: Any) -> None:
    """Agree to a plan that was made before, and watch it. --plan, or a no, cancels it."""
    plan_and_confirm.run_change(
        console, cluster, console.get(f"/changes/{change_id}", cluster=cluster), [], **change_options
    )


def _format_state(change: dict[str, Any]) -> str:
    return f"{change['title']}: {change['state']}"


@changes.command("approve")
@_id
@console_options
@prints(_format_state)
def approve_command(console: api.Console, cluster: str, change_id: int) -> Any:
    """Agree as the second person, where the cluster asks for one."""
    return plan_and_confirm.post_action(
        console, cluster, console.get(f"/changes/{change_id}", cluster=cluster), "approve"
    )


@changes.command("cancel")
@_id
@console_options
@prints(_format_state)
def cancel_command(console: api.Console, cluster: str, change_id: int) -> Any:
    """Call it off: what was done stays done."""
    return plan_and_confirm.post_action(
        console, cluster, console.get(f"/changes/{change_id}", cluster=cluster), "cancel"
    )


@changes.command("watch")
@_id
@console_options
@click.option("--verify", is_flag=True, help="Until what came of it was held against the plan, too.")
@prints(plan_and_confirm.format_progress)
def watch_command(console: api.Console, cluster: str, change_id: int, verify: bool) -> Any:
    """Tell how far it is until it is over."""
    return plan_and_confirm.watch(console, cluster, f"/changes/{change_id}", verify=verify)
