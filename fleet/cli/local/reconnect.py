"""`refloat fleet reconnect`: have proxies of the local fleet advise their agents to leave a proxy, or an auth."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import asdict
from pathlib import Path

import click

from fleet.cli.answers import Failure, show_json
from fleet.cli.home import cluster_option, home_option
from fleet.cli.local.members import channel_to
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetError, FleetRecord
from fleet.transport.admin import AdminError, ReconnectAdvice, TunnelAdmin
from fleet.transport.tls import TLSError


@click.command()
@click.option("--reason", default="", help="Shown in the logs of proxies and agents.")
@click.option("--agent", "agents", multiple=True, help="Id of an agent to move; repeatable. Default: all.")
@click.option("--limit", type=click.IntRange(min=1), help="How many to advise now, at each proxy.")
@click.option("--id", "advisory_id", help="Go on with what an earlier call printed: nobody is advised twice.")
@cluster_option
@home_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, one object for each proxy.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def reconnect(
    cluster: str,
    home: Path,
    names: tuple[str, ...],
    reason: str,
    agents: tuple[str, ...],
    limit: int | None,
    advisory_id: str | None,
    as_json: bool,
) -> None:
    """Have agents leave proxies or auths, by NAME: each is elsewhere before it leaves, and no user is cut.

    Off a proxy they move their tunnels. Off an auth they move their auth connections: every proxy of the fleet asks its
    agents, so this works also when the auth does not answer.
    """
    advisory_id = advisory_id or secrets.token_hex(8)
    try:
        record = fleet_record.load(home, cluster)
        for name in names:
            if not record.member(name).is_instance:
                raise Failure(f"{name} is no proxy and no auth")
        advice_by_proxy = [
            (proxy, asyncio.run(_advise_agents(record, proxy, auth, advisory_id, reason, agents, limit or 0)))
            for name in names
            for proxy, auth in _advising_proxies_of(record, name)
        ]
    except (FleetError, AdminError, TLSError) as error:
        raise Failure(str(error)) from error
    if as_json:
        show_json([{"name": name, "id": advisory_id, **asdict(advice)} for name, advice in advice_by_proxy])
        return
    for name, advice in advice_by_proxy:
        click.echo(f"{name}: {_format_advice(advice)}")
    click.echo(f"to go on or to look again: --id {advisory_id}")


def _advising_proxies_of(record: FleetRecord, name: str) -> list[tuple[str, str | None]]:
    """Return the proxies that ask agents to leave an instance, each with the id of the auth to leave, if it is one."""
    member = record.member(name)
    if member.role == "proxy":
        return [(name, None)]
    return [(proxy.name, member.id) for proxy in record.members if proxy.role == "proxy"]


async def _advise_agents(
    record: FleetRecord,
    name: str,
    auth: str | None,
    advisory_id: str,
    reason: str,
    agents: tuple[str, ...],
    limit: int,
) -> ReconnectAdvice:
    async with channel_to(record, name) as channel:
        admin = TunnelAdmin(channel)
        if auth is not None:
            return await admin.advise_auth_reconnect(advisory_id, reason, auth, agents=agents, limit=limit)
        return await admin.advise_reconnect(advisory_id, reason, agents=agents, limit=limit)


def _format_advice(advice: ReconnectAdvice) -> str:
    parts = [f"{advice.advised} agents advised"]
    for count, description in (
        (advice.already, "advised before and still there"),
        (advice.left, "left for later"),
        (advice.absent, "not there"),
        (advice.staying, "with nowhere to go"),
        (advice.moved, "connected to another auth"),
        (advice.elsewhere, "not on that auth"),
    ):
        if count:
            parts.append(f"{count} {description}")
    return ", ".join(parts)
