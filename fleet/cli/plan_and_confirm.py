"""One way for whatever a console changes: show the plan, ask, confirm, watch it, see what came of it, take it back."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

import click

from fleet.cli import api
from fleet.cli.answers import Failure, json_option, show_json
from fleet.nodes.shared.options import combine
from fleet.vocabulary.changes import ChangeState

_POLL_INTERVAL = 1.0
_END_STATES = {ChangeState.PAUSED, *(state for state in ChangeState if state.is_final)}
#: What a taken-back change is called by: `refloat config undo 7`.
_UNDO_COMMANDS = {"networking-config": "config", "policy": "policies"}


#: The flags that say how to agree; `how` of `carry_out`.
change_options = combine(
    click.option("--reason", default="", help="Why; kept in the log. Asked for when it is not given."),
    click.option("--yes", is_flag=True, help="Do not ask. Above 100 agents say --typed too."),
    click.option("--typed", default="", metavar="CLUSTER", help="The cluster's name, where it is asked for."),
    click.option("--plan", "plan_only", is_flag=True, help="Only show what it would do."),
    click.option("--verify", is_flag=True, help="Wait until what came of it was held against the plan, too."),
    click.option("--no-wait", is_flag=True, help="Do not wait for its end."),
    json_option,
)


def plan_change(console: api.Console, cluster: str, path: str, body: Any, revision: str = "") -> Any:
    """Plan something, on the revision that was read; sent twice it is one plan. Raises Failure."""
    headers = {"Idempotency-Key": secrets.token_hex(8)} | (_if_match(revision) if revision else {})
    return console.post(path, body, cluster=cluster, headers=headers)


def plan_undo(console: api.Console, cluster: str, change_id: int) -> Any:
    """Plan taking a change back. Raises Failure."""
    change_path = f"/changes/{change_id}"
    return plan_change(console, cluster, f"{change_path}/undo", {}, console.get(change_path, cluster=cluster)["revision"])


def post_action(
    console: api.Console, cluster: str, change: Mapping[str, Any], action: str, body: Any | None = None
) -> Any:
    """Ask something of a change, as it was seen: `confirm`, `cancel`, `approve`, `do`. Raises Failure."""
    path = f"/changes/{change['id']}/{action}"
    return console.post(path, body or {}, cluster=cluster, headers=_if_match(change["revision"]))


def run_change(
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
        post_action(console, cluster, change, "cancel")
        return
    if not yes:
        if not click.confirm(f"{change['question'].rstrip('?')}?", err=True):
            post_action(console, cluster, change, "cancel")
            raise Failure("nothing was changed")
        if change["asks_typed"] and not typed:
            typed = click.prompt("Type the cluster's name", err=True)
        reason = reason or click.prompt("Why", err=True)
    post_action(console, cluster, change, "confirm", {"reason": reason, "typed": typed})
    change_path = f"/changes/{change['id']}"
    progress = (
        console.get(f"{change_path}/progress", cluster=cluster)
        if no_wait
        else watch(console, cluster, change_path, verify=verify)
    )
    show_json(progress) if as_json else click.echo(format_progress(progress))
    if progress["state"] in {"failed", "paused"}:
        raise Failure(f"change {progress['id']} is {progress['state']}: {progress['detail']}")
    if not as_json and progress["kind"] in _UNDO_COMMANDS and progress["state"] in {"verifying", "verified"}:
        click.echo(f"to take it back: refloat {_UNDO_COMMANDS[progress['kind']]} undo {progress['id']}", err=True)


def watch(console: api.Console, cluster: str, change_path: str, *, verify: bool = False) -> Any:
    """Tell how far it is until it is over, or waits for somebody; to `verify` it may take as long as the plan said."""
    last_line = ""
    while True:
        progress = console.get(f"{change_path}/progress", cluster=cluster)
        if progress["state"] in _END_STATES or (progress["state"] == "verifying" and not verify):
            return progress
        if progress["state"] == "confirmed":
            change = console.get(change_path, cluster=cluster)
            if change["asks_second"] and not change["approved_by"]:
                return {**progress, "detail": "waits for a second person"}
        current_line = format_progress(progress)
        if current_line != last_line:
            click.echo(current_line, err=True)
            last_line = current_line
        time.sleep(_POLL_INTERVAL)


def format_progress(progress: Mapping[str, Any]) -> str:
    """How far it is, on one line."""
    parts = [f"{progress['state']}: {progress['done']} of {progress['total']} done" if progress["total"] else progress["state"]]
    parts += [f"{progress[name]} {name}" for name in ("ok", "failed", "skipped") if progress.get(name)]
    if progress.get("eta_seconds"):
        parts.append(f"about {progress['eta_seconds']:.0f} s left")
    parts += [progress[name] for name in ("waits_for", "detail") if progress.get(name)]
    return ", ".join(parts)


def _if_match(revision: str) -> dict[str, str]:
    return {"If-Match": f'"{revision}"'}
