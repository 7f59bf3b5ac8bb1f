"""`refloat fleet drain`, `undrain`, `degrade`, `undegrade`: what instances of the local fleet say of themselves."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from fleet.cli.answers import Failure
from fleet.cli.home import cluster_option, home_option
from fleet.cli.local.members import channel_to
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetError, FleetRecord
from fleet.nodes.shared.flags import DURATION
from fleet.nodes.shared.options import Command, Decorator, combine
from fleet.transport.admin import AdminError, InstanceAdmin
from fleet.transport.tls import TLSError

#: What is said to each instance, and what is printed then.
AdminRequest = tuple[Callable[[InstanceAdmin], Awaitable[None]], str]


def _instance_command(*options: Decorator) -> Decorator:
    """Return a decorator for a command that says a word to each of some instances; the command returns the word."""

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def run(home: Path, cluster: str, names: tuple[str, ...], **command_options: Any) -> None:
            call, sentence = command(**command_options)
            try:
                record = fleet_record.load(home, cluster)
                for name in names:
                    if not record.member(name).is_instance:
                        raise Failure(f"{name} is no auth and no proxy")
                for name in names:
                    asyncio.run(_call_instance(record, name, call))
                    click.echo(f"{name} {sentence}")
            except (FleetError, AdminError, TLSError) as error:
                raise Failure(str(error)) from error

        return combine(*options, cluster_option, home_option, _names)(run)

    return add


async def _call_instance(record: FleetRecord, name: str, call: Callable[[InstanceAdmin], Awaitable[None]]) -> None:
    async with channel_to(record, name) as channel:
        await call(InstanceAdmin(channel))


_names = click.argument("names", metavar="NAME...", nargs=-1, required=True)
_reason = click.option("--reason", default="", help="Shown wherever the instance is.")


@click.command()
@_instance_command(_reason)
def drain(reason: str) -> AdminRequest:
    """Have auths and proxies take no new connections.

    Agents of an auth that drains connect to another auth with their next heartbeat, if one accepts it. Tunnels of a
    proxy stay until `refloat fleet reconnect NAME` moves them.

    A restart of the instance ends it. What the console drains, the console drains again.
    """
    return lambda admin: admin.drain(reason), "takes no new connections"


@click.command()
@_instance_command()
def undrain() -> AdminRequest:
    """Undo drain."""
    return InstanceAdmin.undrain, "takes connections again"


@click.command()
@_instance_command(
    _reason,
    click.option(
        "--for",
        "lasts",
        type=DURATION,
        default="0s",
        show_default=True,
        help="How long; 0s: until `undegrade`, or a restart.",
    ),
)
def degrade(reason: str, lasts: float) -> AdminRequest:
    """Have auths and proxies say that they are degraded: others are preferred to them."""
    return lambda admin: admin.degrade(reason, lasts), "says that it is degraded"


@click.command()
@_instance_command()
def undegrade() -> AdminRequest:
    """Undo degrade."""
    return InstanceAdmin.restore, "says so no more"
