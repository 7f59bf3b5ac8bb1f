"""`refloat changes`: what others planned or began, of every kind: agree to it, watch it, call it off."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli import agreeing, api
from fleet.cli.answers import show_json, table
from fleet.cli.console import asks_console

_json = click.option("--json", "as_json", is_flag=True, help="Print the API's answer.")
_id = click.argument("change_id", metavar="CHANGE", type=int)


@click.group()
def changes() -> None:
    """See what is changed on a cluster, agree to it, watch it, or call it off.

    Plans are made by `refloat config`, `refloat policies` and `refloat reconnect`.
    """


@changes.command("list")
@asks_console
@_json
def list_command(console: api.Console, cluster: str, as_json: bool) -> None:
    """List the newest changes, and who has the cluster now."""
    found = console.get("/changes", cluster=cluster)
    if as_json:
        show_json(found)
        return
    rows = [(str(one["id"]), one["kind"], one["state"], one["who"], one["title"]) for one in found["changes"]]
    click.echo(table(("change", "kind", "state", "by", "what"), rows) if rows else "nothing was changed yet")
    if found["busy"]:
        click.echo(found["busy"])


@changes.command("confirm")
@_id
@asks_console
@agreeing.agreeing
def confirm_command(console: api.Console, cluster: str, change_id: int, **how: Any) -> None:
    """Agree to a plan that was made before, and watch it. --plan, or a no, cancels it."""
    agreeing.carry_out(console, cluster, console.get(f"/changes/{change_id}", cluster=cluster), [], **how)


@changes.command("approve")
@_id
@asks_console
@_json
def approve_command(console: api.Console, cluster: str, change_id: int, as_json: bool) -> None:
    """Agree as the second person, where the cluster asks for one."""
    _tell(console, cluster, change_id, "approve", as_json)


@changes.command("cancel")
@_id
@asks_console
@_json
def cancel_command(console: api.Console, cluster: str, change_id: int, as_json: bool) -> None:
    """Call it off: what was done stays done."""
    _tell(console, cluster, change_id, "cancel", as_json)


@changes.command("watch")
@_id
@asks_console
@click.option("--verify", is_flag=True, help="Until what came of it was held against the plan, too.")
@_json
def watch_command(console: api.Console, cluster: str, change_id: int, verify: bool, as_json: bool) -> None:
    """Tell how far it is until it is over."""
    said = agreeing.watch(console, cluster, f"/changes/{change_id}", verify=verify)
    show_json(said) if as_json else click.echo(agreeing.line(said))


def _tell(console: api.Console, cluster: str, change_id: int, word: str, as_json: bool) -> None:
    seen = console.get(f"/changes/{change_id}", cluster=cluster)
    said = agreeing.tell(console, cluster, seen, word)
    show_json(said) if as_json else click.echo(f"{said['title']}: {said['state']}")
