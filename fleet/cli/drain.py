"""`refloat drain` and `refloat undrain`: drain and undrain instances through a console."""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Callable
from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options
from fleet.cli.output import Failure, print_json
from fleet.nodes.shared.options import Command, Decorator, combine

#: The body of the request for each instance, and a function of the response that returns the text to print.
InstanceRequest = tuple[dict[str, Any], Callable[[dict[str, Any]], str]]


def instance_command(action: str, *options: Decorator) -> Decorator:
    """Return a decorator for a command that sends an action to the API for each of its instances.

    The command gets the values of `options` and returns the request; the reason is added to its body. Every id and name
    is resolved before the first request.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(
            console: api.ConsoleClient,
            cluster: str,
            instances: tuple[str, ...],
            reason: str,
            as_json: bool,
            **command_options: Any,
        ) -> None:
            body, format_sentence = command(**command_options)
            responses: list[dict[str, Any]] = []
            instance_ids = find_instance_ids(console, cluster, instances)
            for id_or_name, instance_id in zip(instances, instance_ids, strict=True):
                path = f"/instances/{urllib.parse.quote(instance_id, safe='')}/{action}"
                try:
                    response = console.post(path, {**body, "reason": reason}, cluster=cluster)
                except Failure as failure:
                    if not responses:
                        raise
                    # Earlier instances were changed.
                    raise Failure(
                        failure.message.replace("nothing was changed", f"{id_or_name} was not changed")
                    ) from failure
                responses.append(response)
                if not as_json:
                    click.echo(f"{response['name']} {format_sentence(response)}")
            if as_json:
                print_json(responses)

        return combine(_instances_argument, _reason_option, *options, console_options, _json_option)(run)

    return decorate


_reason_option = click.option(
    "--reason", required=True, help="Reason, shown with the instance and kept in the audit log."
)
_instances_argument = click.argument("instances", metavar="ID|NAME...", nargs=-1, required=True)
_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the API responses as a JSON array."
)


@click.command()
@instance_command(
    "drain",
    click.option(
        "--allow-last",
        is_flag=True,
        help="Allow draining the last instance of its role that accepts connections.",
    ),
)
def drain(allow_last: bool) -> InstanceRequest:
    """Drain auths and proxies: they accept no new connections.

    The agents of a draining auth connect to another auth that accepts connections, with their next heartbeat. The
    tunnels of a draining proxy stay open until `refloat reconnect --proxy NAME` moves them.

    If a drained instance restarts, the console drains it again.
    """
    return {"is_drained": True, "allow_last": allow_last}, lambda _: "will accept no new connections"


@click.command()
@instance_command("drain")
def undrain() -> InstanceRequest:
    """Undrain auths and proxies: they accept new connections again."""
    return {"is_drained": False}, lambda _: "will accept new connections again"


def find_instance_ids(console: api.ConsoleClient, cluster: str, instances: tuple[str, ...]) -> list[str]:
    """Return the ids of instances given by id or name. Raises Failure if one of them was not found."""
    known_instances = console.get("/instances", cluster=cluster)["instances"]
    return [_find_instance_id(text, known_instances) for text in instances]


def _find_instance_id(text: str, instances: list[dict[str, Any]]) -> str:
    """Return the id of an instance given by id or name; of several with the name, registered instances come first."""
    if any(instance["id"] == text for instance in instances):
        return text
    matches = [instance for instance in instances if instance["name"] == text]
    ids = [instance["id"] for instance in matches if instance["state"] != "gone"] or [
        instance["id"] for instance in matches
    ]
    if not ids:
        raise Failure(f"instance {text} was not found: `refloat instances` lists all ids and names")
    if len(ids) > 1:
        raise Failure(f"{len(ids)} instances have the name {text}; use an id: {', '.join(ids[:5])}")
    return str(ids[0])
