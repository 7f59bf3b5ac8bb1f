"""`refloat drain` and `refloat undrain`: instances that accept no new connections, through a console."""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Callable
from typing import Any

import click

from fleet.cli import api
from fleet.cli.answers import Failure, show_json
from fleet.cli.console import console_options
from fleet.nodes.shared.options import Command, Decorator, combine

#: What is requested of each instance, and what is printed of each answer.
InstanceRequest = tuple[dict[str, Any], Callable[[dict[str, Any]], str]]


def instance_command(action: str, *options: Decorator) -> Decorator:
    """Return a decorator for a command that requests the action for each of some instances.

    The command is given what `options` say, and returns the request, to which the reason is added. Every id and name
    is looked up before the first request.
    """

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def run(
            console: api.Console,
            cluster: str,
            instances: tuple[str, ...],
            reason: str,
            as_json: bool,
            **command_options: Any,
        ) -> None:
            body, sentence_of = command(**command_options)
            responses = []
            for instance_id in ids_of(console, cluster, instances):
                path = f"/instances/{urllib.parse.quote(instance_id, safe='')}/{action}"
                response = console.post(path, {**body, "reason": reason}, cluster=cluster)
                responses.append(response)
                if not as_json:
                    click.echo(f"{response['name']} {sentence_of(response)}")
            if as_json:
                show_json(responses)

        return combine(_instances, _reason, *options, console_options, _json)(run)

    return add


_reason = click.option("--reason", required=True, help="Shown wherever the instance is, and kept in the log.")
_instances = click.argument("instances", metavar="ID|NAME...", nargs=-1, required=True)
_json = click.option("--json", "as_json", is_flag=True, help="Print a JSON array of the API's answers.")


@click.command()
@instance_command(
    "drain",
    click.option(
        "--even-last", is_flag=True, help="Also the last instance of its kind that accepts connections."
    ),
)
def drain(even_last: bool) -> InstanceRequest:
    """Drain auths and proxies: they accept no new connections.

    Agents of an auth that drains connect to another auth with their next heartbeat, if one accepts it. Tunnels of a
    proxy stay until `refloat reconnect --proxy NAME` moves them.

    The console drains an instance again when it restarts.
    """
    return {"drained": True, "even_last": even_last}, lambda _: "will accept no new connections"


@click.command()
@instance_command("drain")
def undrain() -> InstanceRequest:
    """Undrain auths and proxies: they accept connections again."""
    return {"drained": False}, lambda _: "will accept connections again"


def ids_of(console: api.Console, cluster: str, instances: tuple[str, ...]) -> list[str]:
    """Return the ids of instances by id or name: every name is right before anything is requested. Raises Failure."""
    known_instances = console.get("/instances", cluster=cluster)["instances"]
    return [_id_of(text, known_instances) for text in instances]


def _id_of(text: str, instances: list[dict[str, Any]]) -> str:
    """Return the id of an instance by its id, or else by its name: of one that is still registered, if there is one."""
    if any(instance["id"] == text for instance in instances):
        return text
    matches = [instance for instance in instances if instance["name"] == text]
    ids = [instance["id"] for instance in matches if instance["state"] != "gone"] or [instance["id"] for instance in matches]
    if not ids:
        raise Failure(f"no instance has the id or the name {text}; `refloat instances` lists all")
    if len(ids) > 1:
        raise Failure(f"{len(ids)} instances have the name {text}; use an id: {', '.join(ids[:5])}")
    return str(ids[0])
