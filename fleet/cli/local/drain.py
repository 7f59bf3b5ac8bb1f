"""`refloat fleet drain`, `undrain`, `degrade`, `undegrade`: drain and degrade instances of the local fleet."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from fleet.cli.home import cluster_option, home_option
from fleet.cli.local.members import open_channel_to
from fleet.cli.local.unreachable import explain_unreachable
from fleet.cli.output import Failure
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetError, FleetRecord
from fleet.nodes.shared.flags import DURATION
from fleet.nodes.shared.options import Command, Decorator, combine
from fleet.transport.admin import AdminError, InstanceAdminClient
from fleet.transport.tls import TLSError

#: The call to each instance, and the text to print afterwards.
AdminRequest = tuple[Callable[[InstanceAdminClient], Awaitable[None]], str]


def _instance_command(*options: Decorator) -> Decorator:
    """Return a decorator for a command that makes one call to each of its instances; the command returns the call."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(home: Path, cluster: str, names: tuple[str, ...], **command_options: Any) -> None:
            call, sentence = command(**command_options)
            try:
                record = fleet_record.load(home, cluster)
                for name in names:
                    if not record.find_member(name).is_instance:
                        raise Failure(
                            f"{name} is not an auth or a proxy: `refloat fleet ps` lists the role of each process"
                        )
                for name in names:
                    asyncio.run(_call_instance(record, name, call))
                    click.echo(f"{name} {sentence}")
            except (FleetError, AdminError, TLSError) as error:
                raise Failure(str(error)) from error

        return combine(*options, cluster_option, home_option, _names_argument)(run)

    return decorate


async def _call_instance(
    record: FleetRecord, name: str, call: Callable[[InstanceAdminClient], Awaitable[None]]
) -> None:
    with explain_unreachable(record, name):
        async with open_channel_to(record, name) as channel:
            await call(InstanceAdminClient(channel))


_names_argument = click.argument("names", metavar="NAME...", nargs=-1, required=True)
_reason_option = click.option("--reason", default="", help="Reason, shown with the instance.")


@click.command()
@_instance_command(_reason_option)
def drain(reason: str) -> AdminRequest:
    """Drain auths and proxies: they accept no new connections.

    The agents of a draining auth connect to another auth that accepts connections, with their next heartbeat. The
    tunnels of a draining proxy stay open until `refloat fleet reconnect NAME` moves them.

    A restart of the instance ends the drain. If the console drained the instance, the console drains it again.
    """
    return lambda admin: admin.drain(reason), "accepts no new connections"


@click.command()
@_instance_command()
def undrain() -> AdminRequest:
    """Undrain auths and proxies: they accept connections."""
    return InstanceAdminClient.undrain, "accepts new connections again"


@click.command()
@_instance_command(
    _reason_option,
    click.option(
        "--for",
        "duration_seconds",
        type=DURATION,
        default="0s",
        show_default=True,
        help="Time until the mark is cleared; 0s: until `undegrade` or a restart of the instance.",
    ),
)
def degrade(reason: str, duration_seconds: float) -> AdminRequest:
    """Mark auths and proxies as degraded.

    Load balancers prefer other instances.
    """
    return lambda admin: admin.degrade(reason, duration_seconds), "is marked degraded"


@click.command()
@_instance_command()
def undegrade() -> AdminRequest:
    """Clear the degraded mark of auths and proxies."""
    return InstanceAdminClient.restore, "is no longer marked degraded"
