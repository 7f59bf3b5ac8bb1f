"""`refloat changes`: list, confirm, approve, cancel and watch changes of every kind."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli import api, plan_and_confirm
from fleet.cli.console import console_options
from fleet.cli.output import format_table, prints_response

_change_argument = click.argument("change_id", metavar="CHANGE", type=int)


@click.group()
def changes() -> None:
    """List, confirm, approve, cancel and watch changes.

    Every change of a fleet is in this list: of the networking config, of policies, reconnect campaigns, instances
    that are drained or marked as degraded, and retired agents.
    """


def _state_of(change: dict[str, Any]) -> str:
    """Return the state as pages name it; a console of an earlier version has only the stored one."""
    return str(change.get("state_label", change["state"]))


def _format_changes(response: dict[str, Any]) -> str:
    rows = [
        (
            str(change["id"]),
            change["kind"],
            _state_of(change),
            change["actor_name"],
            change["title"],
        )
        for change in response["changes"]
    ]
    text = format_table(("change", "kind", "state", "author", "title"), rows) if rows else "no changes"
    return f"{text}\n{response['busy_reason']}" if response["busy_reason"] else text


@changes.command("list")
@console_options
@prints_response(_format_changes)
def list_command(console: api.ConsoleClient, cluster: str) -> Any:
    """List the newest changes, and the change in progress."""
    return console.get("/changes", cluster=cluster)


@changes.command("confirm")
@_change_argument
@console_options
@plan_and_confirm.confirm_options
def confirm_command(console: api.ConsoleClient, cluster: str, change_id: int, **change_options: Any) -> None:
    """Show the plan of a change, confirm it, and watch its progress.

    If you answer no, the change stays planned.
    """
    change = console.get(f"/changes/{change_id}", cluster=cluster)
    plan_and_confirm.run_change(console, cluster, change, is_new=False, **change_options)


def _format_change_state(change: dict[str, Any]) -> str:
    return f"{change['title']}: {_state_of(change)}"


@changes.command("approve")
@_change_argument
@console_options
@prints_response(_format_change_state)
def approve_command(console: api.ConsoleClient, cluster: str, change_id: int) -> Any:
    """Approve a confirmed change that requires review."""
    return plan_and_confirm.post_action(
        console, cluster, console.get(f"/changes/{change_id}", cluster=cluster), "approve"
    )


@changes.command("cancel")
@_change_argument
@console_options
@prints_response(_format_change_state)
def cancel_command(console: api.ConsoleClient, cluster: str, change_id: int) -> Any:
    """Cancel a change before it runs, or abort it while it runs. Completed steps are not undone."""
    return plan_and_confirm.post_action(
        console, cluster, console.get(f"/changes/{change_id}", cluster=cluster), "cancel"
    )


@changes.command("undo")
@_change_argument
@console_options
@plan_and_confirm.change_options
def undo_command(console: api.ConsoleClient, cluster: str, change_id: int, **change_options: Any) -> None:
    """Undo a change: preview, confirm, watch.

    Reconnect campaigns cannot be undone.
    """
    plan_and_confirm.plan_and_run_undo(console, cluster, change_id, **change_options)


@changes.command("watch")
@_change_argument
@console_options
@click.option("--verify", is_flag=True, help="Also wait until the result is verified against the plan.")
@prints_response(plan_and_confirm.format_progress)
def watch_command(console: api.ConsoleClient, cluster: str, change_id: int, verify: bool) -> Any:
    """Show the progress of a change.

    Runs until the change finishes, pauses or needs approval.
    """
    return plan_and_confirm.watch(console, cluster, f"/changes/{change_id}", verify=verify)
