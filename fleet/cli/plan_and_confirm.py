"""One way for whatever a console changes: show the plan, ask, confirm, watch it, see what came of it, take it back."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

import click

from fleet.cli import api
from fleet.cli.answers import Failure, json_option, show_json
from fleet.nodes.shared.options import combined
from fleet.vocabulary.changes import ChangeState

_LOOK_EVERY = 1.0
_OVER = {ChangeState.PAUSED, *(state for state in ChangeState if state.final)}
#: What a taken-back change is called by: `refloat config undo 7`.
_GROUPS = {"networking-config": "config", "policy": "policies"}


#: The flags that say how to agree; `how` of `carry_out`.
agreeing = combined(
    click.option("--reason", default="", help="Why; kept in the log. Asked for when it is not given."),
    click.option("--yes", is_flag=True, help="Do not ask. Above 100 agents say --typed too."),
    click.option("--typed", default="", metavar="CLUSTER", help="The cluster's name, where it is asked for."),
    click.option("--plan", "plan_only", is_flag=True, help="Only show what it would do."),
    click.option("--verify", is_flag=True, help="Wait until what came of it was held against the plan, too."),
    click.option("--no-wait", is_flag=True, help="Do not wait for its end."),
    json_option,
)


def plan(console: api.Console, cluster: str, path: str, body: Any, revision: str = "") -> Any:
    """Plan something, on the revision that was read; sent twice it is one plan. Raises Failure."""
    headers = {"Idempotency-Key": secrets.token_hex(8)} | (_if_match(revision) if revision else {})
    return console.post(path, body, cluster=cluster, headers=headers)


def plan_undoing(console: api.Console, cluster: str, change_id: int) -> Any:
    """Plan taking a change back. Raises Failure."""
    here = f"/changes/{change_id}"
    return plan(console, cluster, f"{here}/undo", {}, console.get(here, cluster=cluster)["revision"])


def tell(
    console: api.Console, cluster: str, change: Mapping[str, Any], word: str, body: Any | None = None
) -> Any:
    """Ask something of a change, as it was seen: `confirm`, `cancel`, `approve`, `do`. Raises Failure."""
    path = f"/changes/{change['id']}/{word}"
    return console.post(path, body or {}, cluster=cluster, headers=_if_match(change["revision"]))


def carry_out(
    console: api.Console,
    cluster: str,
    change: Mapping[str, Any],
    lines: list[str],
    *,
    reason: str,
    yes: bool,
    typed: str,
    plan_only: bool,
    verify: bool,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Show a plan, ask, confirm it, and watch it to its end. Raises Failure when it does not end well."""
    if not as_json:
        click.echo("\n".join([f"{change['title']} (change {change['id']})", *lines]), err=not plan_only)
    if plan_only:
        if as_json:
            show_json(change)
        tell(console, cluster, change, "cancel")
        return
    if not yes:
        if not click.confirm(f"{change['question'].rstrip('?')}?", err=True):
            tell(console, cluster, change, "cancel")
            raise Failure("nothing was changed")
        if change["asks_typed"] and not typed:
            typed = click.prompt("Type the cluster's name", err=True)
        reason = reason or click.prompt("Why", err=True)
    tell(console, cluster, change, "confirm", {"reason": reason, "typed": typed})
    here = f"/changes/{change['id']}"
    said = (
        console.get(f"{here}/progress", cluster=cluster)
        if no_wait
        else watch(console, cluster, here, verify=verify)
    )
    show_json(said) if as_json else click.echo(line(said))
    if said["state"] in {"failed", "paused"}:
        raise Failure(f"change {said['id']} is {said['state']}: {said['detail']}")
    if not as_json and said["kind"] in _GROUPS and said["state"] in {"verifying", "verified"}:
        click.echo(f"to take it back: refloat {_GROUPS[said['kind']]} undo {said['id']}", err=True)


def watch(console: api.Console, cluster: str, here: str, *, verify: bool = False) -> Any:
    """Tell how far it is until it is over, or waits for somebody; to `verify` it may take as long as the plan said."""
    last = ""
    while True:
        said = console.get(f"{here}/progress", cluster=cluster)
        if said["state"] in _OVER or (said["state"] == "verifying" and not verify):
            return said
        if said["state"] == "confirmed":
            change = console.get(here, cluster=cluster)
            if change["asks_second"] and not change["approved_by"]:
                return {**said, "detail": "waits for a second person"}
        now = line(said)
        if now != last:
            click.echo(now, err=True)
            last = now
        time.sleep(_LOOK_EVERY)


def line(said: Mapping[str, Any]) -> str:
    """How far it is, on one line."""
    parts = [f"{said['state']}: {said['done']} of {said['total']} done" if said["total"] else said["state"]]
    parts += [f"{said[name]} {name}" for name in ("ok", "failed", "skipped") if said.get(name)]
    if said.get("eta_seconds"):
        parts.append(f"about {said['eta_seconds']:.0f} s left")
    parts += [said[name] for name in ("waits_for", "detail") if said.get(name)]
    return ", ".join(parts)


def _if_match(revision: str) -> dict[str, str]:
    return {"If-Match": f'"{revision}"'}
