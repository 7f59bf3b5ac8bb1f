"""`refloat fleet drain`, `undrain`, `degrade`, `undegrade`: what instances of the local fleet say of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from fleet.cli.answers import Failure
from fleet.cli.home import cluster_option, home_option
from fleet.cli.local.members import channel_to
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetError, FleetRecord
from fleet.nodes.shared.flags import DURATION
from fleet.transport.admin import AdminError, InstanceAdmin
from fleet.transport.channels import TLSError

_names = click.argument("names", metavar="NAME...", nargs=-1, required=True)
_reason = click.option("--reason", default="", help="Shown wherever the instance is.")


@click.command()
@_reason
@cluster_option
@home_option
@_names
def drain(cluster: str, home: Path, names: tuple[str, ...], reason: str) -> None:
    """Have auths and proxies take no new connections.

    Agents of an auth that drains connect to another auth with their next heartbeat, if one accepts it. Tunnels of a
    proxy stay until `refloat fleet reconnect NAME` moves them.

    A restart of the instance ends it. What the console drains, the console drains again.
    """
    _each(home, cluster, names, lambda admin: admin.drain(reason), "takes no new connections")


@click.command()
@cluster_option
@home_option
@_names
def undrain(cluster: str, home: Path, names: tuple[str, ...]) -> None:
    """Undo drain."""
    _each(home, cluster, names, lambda admin: admin.undrain(), "takes connections again")


@click.command()
@_reason
@click.option(
    "--for",
    "lasts",
    type=DURATION,
    default="0s",
    show_default=True,
    help="How long; 0s: until `undegrade`, or a restart.",
)
@cluster_option
@home_option
@_names
def degrade(cluster: str, home: Path, names: tuple[str, ...], reason: str, lasts: float) -> None:
    """Have auths and proxies say that they are degraded: others are preferred to them."""
    _each(home, cluster, names, lambda admin: admin.degrade(reason, lasts), "says that it is degraded")


@click.command()
@cluster_option
@home_option
@_names
def undegrade(cluster: str, home: Path, names: tuple[str, ...]) -> None:
    """Undo degrade."""
    _each(home, cluster, names, lambda admin: admin.restore(), "says so no more")


def _each(
    home: Path,
    cluster: str,
    names: tuple[str, ...],
    say: Callable[[InstanceAdmin], Awaitable[None]],
    done: str,
) -> None:
    try:
        record = fleet_record.load(home, cluster)
        for name in names:
            if not record.member(name).is_instance:
                raise Failure(f"{name} is no auth and no proxy")
        for name in names:
            asyncio.run(_tell(record, name, say))
            click.echo(f"{name} {done}")
    except (FleetError, AdminError, TLSError) as error:
        raise Failure(str(error)) from error


async def _tell(record: FleetRecord, name: str, say: Callable[[InstanceAdmin], Awaitable[None]]) -> None:
    async with channel_to(record, name) as channel:
        await say(InstanceAdmin(channel))
