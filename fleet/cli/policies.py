"""`refloat policies`: the env-driven policies of auths and proxies through a console."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from fleet.changes.policies.outlook import describe_ttl
from fleet.cli import api, plan_and_confirm
from fleet.cli.answers import Failure, json_option, pair, show_json, table
from fleet.cli.console import console_options
from fleet.protocol.policies import env_policies as rules
from fleet.protocol.policies import snippets
from fleet.vocabulary import rollouts


def _rollout_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add a flag for each term of a rollout; the command is given `terms`, which the console checks."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        terms = {name: options.pop(name) for name in rollouts.RANGES}
        command(*args, terms={name: text for name, text in terms.items() if text is not None}, **options)

    for name, (low, high, label, unit) in reversed(list(rollouts.RANGES.items())):
        help_text = f"{label}: {low} to {high}{f' {unit}' if unit else ''}; default {getattr(rollouts.RolloutSettings(), name)}."
        run = click.option(f"--{name.replace('_', '-')}", name, help=help_text)(run)
    return run


@click.group()
def policies() -> None:
    """See what auths and proxies run with, and roll other policies out.

    TARGET is `auth`, `proxy`, or the name or id of an instance. NAME is a variable, or the end of its name.
    """


@policies.command("list")
@console_options
@click.option("--drift", is_flag=True, help="Only what is not as wanted.")
@json_option
def list_command(console: api.Console, cluster: str, drift: bool, as_json: bool) -> None:
    """List what every instance runs with, and what is wanted."""
    response = console.get("/policies", cluster=cluster)
    if as_json:
        show_json(response)
        return
    rows = [
        (
            instance["name"],
            _short_name_of(entry["name"]),
            entry["value"] or "",
            entry["source"] or "",
            entry["desired"],
            entry["state"],
        )
        for instance in response["instances"]
        for entry in instance["policies"]
        if not drift or entry["state"] in {"drift", "restart", "left"}
    ]
    click.echo(table(("instance", "policy", "runs with", "from", "wanted", "state"), rows))
    for entry in response["gone"]:
        click.echo(f"still wanted of {entry}, which is gone; forget it: refloat policies forget {entry}")


@policies.command("set")
@click.argument("target")
@click.argument("values", metavar="NAME=VALUE...", nargs=-1, required=True)
@console_options
@click.option("--no-rollout", is_flag=True, help="Want it only; restart nobody.")
@_rollout_options
@plan_and_confirm.change_options
def set_command(
    console: api.Console,
    cluster: str,
    target: str,
    values: tuple[str, ...],
    no_rollout: bool,
    terms: dict[str, str],
    **change_options: Any,
) -> None:
    """Plan other policies and their rollout, ask, and watch it. An empty VALUE unsets."""
    response = console.get("/policies", cluster=cluster)
    target_id = _target_id_of(response, target)
    desired_values = dict(response["desired"].get(target_id, {}))
    for text in values:
        name, policy_value = pair(text, "NAME=VALUE")
        desired_values[_find_policy_name(name, _role_of(response, target_id))] = policy_value
    new_values = {name: policy_value for name, policy_value in desired_values.items() if policy_value}
    body = {"desired": {target_id: new_values}, "roll_out": not no_rollout, "terms": terms}
    _plan_and_run(console, cluster, response, body, **change_options)


@policies.command("forget")
@click.argument("instance_id")
@console_options
@plan_and_confirm.change_options
def forget_command(console: api.Console, cluster: str, instance_id: str, **change_options: Any) -> None:
    """Want nothing any more of an instance that was deregistered."""
    response = console.get("/policies", cluster=cluster)
    if instance_id not in response["gone"]:
        raise Failure(f"nothing is wanted of an instance {instance_id!r} that is gone")
    _plan_and_run(console, cluster, response, {"desired": {instance_id: {}}, "roll_out": False}, **change_options)


@policies.command("undo")
@click.argument("change_id", type=int, metavar="CHANGE")
@console_options
@plan_and_confirm.change_options
def undo_command(console: api.Console, cluster: str, change_id: int, **change_options: Any) -> None:
    """Plan what was wanted before a change, by its number, and its rollout; ask, and watch it."""
    change = plan_and_confirm.plan_undo(console, cluster, change_id)
    plan_and_confirm.run_change(console, cluster, change, _format_plan(change["plan"]), **change_options)


def _plan_and_run(
    console: api.Console, cluster: str, response: dict[str, Any], body: dict[str, Any], **change_options: Any
) -> None:
    change = plan_and_confirm.plan_change(console, cluster, "/policies/plan", body, response["revision"])
    plan_and_confirm.run_change(console, cluster, change, _format_plan(change["plan"]), **change_options)


def _format_plan(plan: dict[str, Any]) -> list[str]:
    """A plan in lines."""
    lines = [f"  restarts {instance['name']}, {instance['agents']} agents" for instance in plan["restarts"]]
    lines += [f"  {instance['name']} is for you to restart: {instance['why']}" for instance in plan["by_hand"]]
    lines += [f"  {describe_ttl(row)}" for row in plan.get("ttl", ())]
    return lines + [f"  {note}" for note in plan.get("notes", ())]


@policies.command("snippet")
@click.argument("target")
@console_options
@click.option(
    "--for", "kind", type=click.Choice(["systemd", "compose", "Helm", "shell"], case_sensitive=False), default="shell",
    show_default=True,
)  # fmt: skip
def snippet_command(console: api.Console, cluster: str, target: str, kind: str) -> None:
    """Print what to write where policies are set by hand."""
    response = console.get("/policies", cluster=cluster)
    target_id = _target_id_of(response, target)
    role = _role_of(response, target_id)
    desired_values = {**response["desired"].get(role, {}), **response["desired"].get(target_id, {})}
    click.echo(dict(snippets.all_of(role, desired_values)).get(kind, f"# nothing is wanted of {target}"))


def _target_id_of(response: dict[str, Any], text: str) -> str:
    if text in rules.ROLES:
        return text
    for instance in response["instances"]:
        if text in (instance["id"], instance["name"]):
            return str(instance["id"])
    raise Failure(f"there is no role and no instance {text!r}")


def _role_of(response: dict[str, Any], target_id: str) -> str:
    return str(next((instance["role"] for instance in response["instances"] if instance["id"] == target_id), target_id))


def _find_policy_name(text: str, role: str) -> str:
    """The whole name of a policy that this role reads."""
    suffix = text.strip().upper().replace("-", "_")
    names = [policy.name for policy in rules.POLICIES if policy.role == role]
    matches = [name for name in names if name == suffix or name.endswith(f"_{suffix}")]
    if len(matches) != 1:
        raise Failure(f"{text!r} is none of what {rules.PLURALS[role]} read: {', '.join(map(_short_name_of, names))}")
    return matches[0]


def _short_name_of(name: str) -> str:
    return name.removeprefix("TELEPORT_UNSTABLE_").lower()
