"""`refloat policies`: the env-driven policies of auths and proxies through a console."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from fleet.changes.policies.outlook import ttl_sentence
from fleet.cli import api, plan_and_confirm
from fleet.cli.answers import Failure, json_option, pair, show_json, table
from fleet.cli.console import asks_console
from fleet.protocol.policies import env_policies as rules
from fleet.protocol.policies import snippets
from fleet.vocabulary import rollouts


def _terms(command: Callable[..., None]) -> Callable[..., None]:
    """Add a flag for each term of a rollout; the command is given `terms`, which the console checks."""

    @functools.wraps(command)
    def run(*asked: Any, **given: Any) -> None:
        terms = {name: given.pop(name) for name in rollouts.RANGES}
        command(*asked, terms={name: text for name, text in terms.items() if text is not None}, **given)

    for name, (low, high, label, unit) in reversed(list(rollouts.RANGES.items())):
        said = f"{label}: {low} to {high}{f' {unit}' if unit else ''}; default {getattr(rollouts.Terms(), name)}."
        run = click.option(f"--{name.replace('_', '-')}", name, help=said)(run)
    return run


@click.group()
def policies() -> None:
    """See what auths and proxies run with, and roll other policies out.

    TARGET is `auth`, `proxy`, or the name or id of an instance. NAME is a variable, or the end of its name.
    """


@policies.command("list")
@asks_console
@click.option("--drift", is_flag=True, help="Only what is not as wanted.")
@json_option
def list_command(console: api.Console, cluster: str, drift: bool, as_json: bool) -> None:
    """List what every instance runs with, and what is wanted."""
    found = console.get("/policies", cluster=cluster)
    if as_json:
        show_json(found)
        return
    rows = [
        (
            line["name"],
            _short(one["name"]),
            one["value"] or "",
            one["source"] or "",
            one["desired"],
            one["state"],
        )
        for line in found["instances"]
        for one in line["policies"]
        if not drift or one["state"] in {"drift", "restart", "left"}
    ]
    click.echo(table(("instance", "policy", "runs with", "from", "wanted", "state"), rows))
    for one in found["gone"]:
        click.echo(f"still wanted of {one}, which is gone; forget it: refloat policies forget {one}")


@policies.command("set")
@click.argument("target")
@click.argument("values", metavar="NAME=VALUE...", nargs=-1, required=True)
@asks_console
@click.option("--no-rollout", is_flag=True, help="Want it only; restart nobody.")
@_terms
@plan_and_confirm.agreeing
def set_command(
    console: api.Console,
    cluster: str,
    target: str,
    values: tuple[str, ...],
    no_rollout: bool,
    terms: dict[str, str],
    **how: Any,
) -> None:
    """Plan other policies and their rollout, ask, and watch it. An empty VALUE unsets."""
    found = console.get("/policies", cluster=cluster)
    whose = _target(found, target)
    wanted = dict(found["desired"].get(whose, {}))
    for text in values:
        name, value = pair(text, "NAME=VALUE")
        wanted[_name(name, _role(found, whose))] = value
    kept = {name: value for name, value in wanted.items() if value}
    body = {"desired": {whose: kept}, "roll_out": not no_rollout, "terms": terms}
    _plan(console, cluster, found, body, **how)


@policies.command("forget")
@click.argument("instance_id")
@asks_console
@plan_and_confirm.agreeing
def forget_command(console: api.Console, cluster: str, instance_id: str, **how: Any) -> None:
    """Want nothing any more of an instance that was deregistered."""
    found = console.get("/policies", cluster=cluster)
    if instance_id not in found["gone"]:
        raise Failure(f"nothing is wanted of an instance {instance_id!r} that is gone")
    _plan(console, cluster, found, {"desired": {instance_id: {}}, "roll_out": False}, **how)


@policies.command("undo")
@click.argument("change_id", type=int, metavar="CHANGE")
@asks_console
@plan_and_confirm.agreeing
def undo_command(console: api.Console, cluster: str, change_id: int, **how: Any) -> None:
    """Plan what was wanted before a change, by its number, and its rollout; ask, and watch it."""
    change = plan_and_confirm.plan_undoing(console, cluster, change_id)
    plan_and_confirm.carry_out(console, cluster, change, _said(change["plan"]), **how)


def _plan(
    console: api.Console, cluster: str, found: dict[str, Any], body: dict[str, Any], **how: Any
) -> None:
    change = plan_and_confirm.plan(console, cluster, "/policies/plan", body, found["revision"])
    plan_and_confirm.carry_out(console, cluster, change, _said(change["plan"]), **how)


def _said(plan: dict[str, Any]) -> list[str]:
    """A plan in lines."""
    lines = [f"  restarts {one['name']}, {one['agents']} agents" for one in plan["restarts"]]
    lines += [f"  {one['name']} is for you to restart: {one['why']}" for one in plan["by_hand"]]
    lines += [f"  {ttl_sentence(row)}" for row in plan.get("ttl", ())]
    return lines + [f"  {note}" for note in plan.get("notes", ())]


@policies.command("snippet")
@click.argument("target")
@asks_console
@click.option(
    "--for", "kind", type=click.Choice(["systemd", "compose", "Helm", "shell"], case_sensitive=False), default="shell",
    show_default=True,
)  # fmt: skip
def snippet_command(console: api.Console, cluster: str, target: str, kind: str) -> None:
    """Print what to write where policies are set by hand."""
    found = console.get("/policies", cluster=cluster)
    whose = _target(found, target)
    role = _role(found, whose)
    wanted = {**found["desired"].get(role, {}), **found["desired"].get(whose, {})}
    click.echo(dict(snippets.all_of(role, wanted)).get(kind, f"# nothing is wanted of {target}"))


def _target(found: dict[str, Any], text: str) -> str:
    if text in rules.ROLES:
        return text
    for one in found["instances"]:
        if text in (one["id"], one["name"]):
            return str(one["id"])
    raise Failure(f"there is no role and no instance {text!r}")


def _role(found: dict[str, Any], whose: str) -> str:
    return str(next((one["role"] for one in found["instances"] if one["id"] == whose), whose))


def _name(text: str, role: str) -> str:
    """The whole name of a policy that this role reads."""
    wanted = text.strip().upper().replace("-", "_")
    names = [policy.name for policy in rules.POLICIES if policy.role == role]
    met = [name for name in names if name == wanted or name.endswith(f"_{wanted}")]
    if len(met) != 1:
        raise Failure(f"{text!r} is none of what {rules.PLURALS[role]} read: {', '.join(map(_short, names))}")
    return met[0]


def _short(name: str) -> str:
    return name.removeprefix("TELEPORT_UNSTABLE_").lower()
