"""`refloat policies`: the env-driven policies of auths and proxies through a console."""

from __future__ import annotations

import secrets
from typing import Any

import click

from fleet.cli import agreeing, api
from fleet.cli.answers import Failure, show_json, table
from fleet.cli.console import asks_console
from fleet.protocol import policies as rules
from fleet.protocol import policy_snippets

_json = click.option("--json", "as_json", is_flag=True, help="Print the API's answer.")


@click.group()
def policies() -> None:
    """See what auths and proxies run with, and roll other policies out.

    TARGET is `auth`, `proxy`, or the name or id of an instance. NAME is a variable, or the end of its name.
    """


@policies.command("list")
@asks_console
@click.option("--drift", is_flag=True, help="Only what is not as wanted.")
@_json
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
        if not drift or one["state"] in {"drift", "restart"}
    ]
    click.echo(table(("instance", "policy", "runs with", "from", "wanted", "state"), rows))


@policies.command("set")
@click.argument("target")
@click.argument("values", metavar="NAME=VALUE...", nargs=-1, required=True)
@asks_console
@click.option("--no-rollout", is_flag=True, help="Want it only; restart nobody.")
@click.option("--at-once", default=1, show_default=True, help="Instances at a time.")
@agreeing.agreeing
def set_command(
    console: api.Console,
    cluster: str,
    target: str,
    values: tuple[str, ...],
    no_rollout: bool,
    at_once: int,
    **how: Any,
) -> None:
    """Plan other policies and their rollout, ask, and watch it. An empty VALUE unsets."""
    found = console.get("/policies", cluster=cluster)
    whose = _target(found, target)
    wanted = dict(found["desired"].get(whose, {}))
    for text in values:
        name, equals, value = text.partition("=")
        if not equals:
            raise Failure(f"{text!r} is not NAME=VALUE")
        wanted[_name(name)] = value
    body = {
        "desired": {whose: {name: value for name, value in wanted.items() if value}},
        "roll_out": not no_rollout,
        "terms": {"at_once": at_once},
    }
    headers = {"If-Match": f'"{found["revision"]}"', "Idempotency-Key": secrets.token_hex(8)}
    change = console.post("/policies/plan", body, cluster=cluster, headers=headers)
    planned = change["plan"]
    lines = [f"  restarts {one['name']}, {one['agents']} agents" for one in planned["restarts"]]
    lines += [f"  {one['name']} is for you to restart: {one['why']}" for one in planned["by_hand"]]
    agreeing.carry_out(console, cluster, change, lines, **how)


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
    role = next((one["role"] for one in found["instances"] if one["id"] == whose), whose)
    wanted = {**found["desired"].get(role, {}), **found["desired"].get(whose, {})}
    click.echo(dict(policy_snippets.all_of(role, wanted)).get(kind, f"# nothing is wanted of {target}"))


def _target(found: dict[str, Any], text: str) -> str:
    if text in rules.ROLES:
        return text
    for one in found["instances"]:
        if text in (one["id"], one["name"]):
            return str(one["id"])
    raise Failure(f"there is no role and no instance {text!r}")


def _name(text: str) -> str:
    """A policy's whole name."""
    wanted = text.strip().upper().replace("-", "_")
    met = [name for name in rules.BY_NAME if name == wanted or name.endswith(f"_{wanted}")]
    if len(met) != 1:
        raise Failure(f"{text!r} is none of: {', '.join(rules.BY_NAME)}")
    return met[0]


def _short(name: str) -> str:
    return name.removeprefix("TELEPORT_UNSTABLE_").lower()
