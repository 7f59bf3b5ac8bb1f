"""The steps of every change through a console: preview, confirm, watch, verify, and the way to undo it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

import click

from fleet.cli import api
from fleet.cli.output import Failure, json_option, print_json
from fleet.cli.plan_text import format_plan
from fleet.nodes.shared.options import combine
from fleet.protocol.durations import format_readable
from fleet.vocabulary.changes import ChangeState

_POLL_INTERVAL = 1.0
_END_STATES = {ChangeState.PAUSED, *(state for state in ChangeState if state.is_final)}
#: The command group whose `undo` undoes a change of this kind: `refloat config undo 7`.
_UNDO_COMMANDS = {
    "networking-config": "config",
    "policy": "policies",
    "service": "changes",
    "degrade": "changes",
    "retire": "changes",
}
#: What the progress of a change counts, by its kind.
_COUNT_UNITS = {
    "networking-config": "tunnels",
    "policy": "instances restarted",
    "reconnect": "agents finished",
    "degrade": "instances",
    "retire": "agents",
}
#: Labels of the results of a campaign, by field of its progress.
_RESULT_LABELS = {"succeeded_count": "succeeded", "failed_count": "failed", "skipped_count": "skipped"}
#: States in which a change has stopped before its end.
_STOP_PHRASES = {"failed": "failed", "paused": "is paused"}


_reason_options = combine(
    click.option("--reason", default="", help="Reason, kept in the audit log. Prompted for if not given."),
    click.option(
        "--yes",
        is_flag=True,
        help="Confirm without a prompt. Requires --reason; on a production cluster or for more than 100 agents also "
        "--confirm-cluster.",
    ),
    click.option(
        "--confirm-cluster",
        "confirmation",
        default="",
        metavar="CLUSTER",
        help="Name of the cluster. Confirms a change on a production cluster or of more than 100 agents.",
    ),
)
_dry_run_option = click.option(
    "--dry-run", "plan_only", is_flag=True, help="Only show the plan; change nothing."
)
_watch_options = combine(
    click.option("--verify", is_flag=True, help="Also wait until the result is verified against the plan."),
    click.option(
        "--no-wait", is_flag=True, help="Exit after confirming, without waiting for the change to finish."
    ),
    json_option,
)
#: The flags of a command that plans a change and confirms it: keyword arguments of `plan_and_run`.
change_options = combine(_reason_options, _dry_run_option, _watch_options)
#: The flags of a command that confirms a change which was planned before.
confirm_options = combine(_reason_options, _watch_options)


def plan_and_run(
    console: api.ConsoleClient,
    cluster: str,
    path: str,
    body: Any,
    revision: str = "",
    *,
    plan_only: bool,
    **confirm_options: Any,
) -> None:
    """Plan a change, based on the revision that was read; ask, confirm it, and watch it. Raises Failure.

    A repeated request creates no second change. With `plan_only`, only show the plan: it is not stored.
    `confirm_options`: see `run_change`.
    """
    headers = {"Idempotency-Key": secrets.token_hex(8)} | (_if_match(revision) if revision else {})
    if plan_only:
        plan = console.post(f"{path}?dry_run=true", body, cluster=cluster, headers=headers)
        if confirm_options["as_json"]:
            print_json(plan)
        else:
            click.echo("\n".join([f"{plan['title']} (dry run)", *format_plan(plan)]))
        return
    change = console.post(path, body, cluster=cluster, headers=headers)
    run_change(console, cluster, change, **confirm_options)


def plan_and_run_undo(
    console: api.ConsoleClient, cluster: str, change_id: int, **change_options: Any
) -> None:
    """Plan the undo of a change; see `plan_and_run`. Raises Failure."""
    change_path = f"/changes/{change_id}"
    revision = console.get(change_path, cluster=cluster)["revision"]
    plan_and_run(console, cluster, f"{change_path}/undo", {}, revision, **change_options)


def post_action(
    console: api.ConsoleClient, cluster: str, change: Mapping[str, Any], action: str, body: Any | None = None
) -> Any:
    """Send an action on a change as it was read: `confirm`, `cancel`, `approve` or `actions`. Raises Failure."""
    path = f"/changes/{change['id']}/{action}"
    return console.post(path, body or {}, cluster=cluster, headers=_if_match(change["revision"]))


def run_change(
    console: api.ConsoleClient,
    cluster: str,
    change: Mapping[str, Any],
    *,
    reason: str,
    yes: bool,
    confirmation: str,
    verify: bool,
    no_wait: bool,
    as_json: bool,
    is_new: bool = True,
) -> None:
    """Show a plan, ask, confirm it, and watch the change to its end. Raises Failure if it fails or is paused.

    Without a confirmation, a plan that this command made (`is_new`) is canceled.
    """
    if not as_json:
        title = f"{change['title']} (change {change['id']})"
        click.echo("\n".join([title, *format_plan(change)]), err=True)
    if not yes:
        try:
            click.confirm(f"{change['question'].rstrip('?')}?", abort=True, err=True)
            if change["confirmation_required"] and not confirmation:
                confirmation = click.prompt("Type the name of the cluster to confirm", err=True)
            reason = reason or click.prompt("Reason", err=True)
        except click.Abort:  # the answer no, Ctrl-C, or no terminal
            if is_new:
                post_action(console, cluster, change, "cancel")
                raise Failure("not confirmed: nothing was changed") from None
            cancel_command = f"refloat changes cancel {change['id']}"
            raise Failure(
                f"not confirmed: change {change['id']} is still planned. To cancel it: {cancel_command}"
            ) from None
    post_action(console, cluster, change, "confirm", {"reason": reason, "confirmation": confirmation})
    change_path = f"/changes/{change['id']}"
    progress = (
        console.get(f"{change_path}/progress", cluster=cluster)
        if no_wait
        else watch(console, cluster, change_path, verify=verify)
    )
    print_json(progress) if as_json else click.echo(format_progress(progress))
    if progress["state"] in _STOP_PHRASES:
        raise Failure(f"change {progress['id']} {_STOP_PHRASES[progress['state']]}: {progress['detail']}")
    if not as_json and progress["kind"] in _UNDO_COMMANDS and progress["state"] in {"verifying", "verified"}:
        click.echo(f"undo with: refloat {_UNDO_COMMANDS[progress['kind']]} undo {progress['id']}", err=True)


def watch(console: api.ConsoleClient, cluster: str, change_path: str, *, verify: bool = False) -> Any:
    """Print the progress of a change until it finishes, pauses or needs approval, and return its last progress.

    With `verify`, wait until the result is verified, which can take as long as the plan says.
    """
    last_line = ""
    while True:
        progress = console.get(f"{change_path}/progress", cluster=cluster)
        if progress["state"] in _END_STATES or (progress["state"] == "verifying" and not verify):
            return progress
        if progress["state"] == "confirmed":
            change = console.get(change_path, cluster=cluster)
            if change["review_required"] and not change["approved_by"]:
                return {
                    **progress,
                    "detail": f"waiting for approval: refloat changes approve {progress['id']}",
                }
        current_line = format_progress(progress)
        if current_line != last_line:
            click.echo(current_line, err=True)
            last_line = current_line
        time.sleep(_POLL_INTERVAL)


def format_progress(progress: Mapping[str, Any]) -> str:
    """Return the progress of a change as one line: `running: 3 of 9 agents (33 %) · 1 failed`."""
    parts = [progress.get("state_label", progress["state"])]
    if progress["total_count"]:
        share = min(100 * progress["finished_count"] // progress["total_count"], 100)
        unit = _COUNT_UNITS.get(progress["kind"], "steps")
        parts = [
            f"{parts[0]}: {progress['finished_count']:,} of {progress['total_count']:,} {unit} ({share} %)"
        ]
    # Of a rollout, the first part says how many succeeded.
    labels = _RESULT_LABELS if progress["kind"] != "policy" else {**_RESULT_LABELS, "succeeded_count": ""}
    counts = [f"{progress[name]:,} {label}" for name, label in labels.items() if label and progress.get(name)]
    parts += [count for count in counts if count not in progress.get("detail", "")]
    if progress.get("eta_seconds"):
        parts.append(f"about {format_readable(round(progress['eta_seconds']))} left")
    parts += [progress[name] for name in ("waiting_for", "detail") if progress.get(name)]
    return " · ".join(parts)


def _if_match(revision: str) -> dict[str, str]:
    return {"If-Match": f'"{revision}"'}
