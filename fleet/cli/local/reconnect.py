"""`refloat fleet reconnect`: proxies of the local fleet advise their agents to leave a proxy or an auth."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path

import click

from fleet.cli.home import cluster_option, home_option
from fleet.cli.local.members import open_channel_to
from fleet.cli.local.unreachable import explain_unreachable
from fleet.cli.output import Failure, print_json
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetError, FleetRecord
from fleet.nodes.shared.flags import host_id
from fleet.transport.admin import AdminError, ReconnectAdviceResult, TunnelAdminClient
from fleet.transport.tls import TLSError

#: Absent agents that are named in the output; `--json` has all.
_MAX_LISTED_AGENTS = 5


@click.command()
@click.option("--reason", default="", help="Reason, shown in the logs of proxies and agents.")
@click.option(
    "--agent",
    "agents",
    multiple=True,
    help="Name or id of an agent to move (repeatable). Default: all agents.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), help="Maximum number of agents to advise now at each proxy."
)
@click.option(
    "--id",
    "advisory_id",
    help="Continue an earlier run by the id that it printed: skip the agents that it advised.",
)
@cluster_option
@home_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with one object per proxy.")
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
    """Reconnect agents of proxies or auths to others.

    The agents of a proxy move their tunnel to another proxy. For an auth, the proxies advise its agents to connect
    to another auth, so this works even if the auth does not respond. An agent opens its new connection before it closes
    the old one, so user connections are not interrupted.
    """
    advisory_id = advisory_id or secrets.token_hex(8)
    try:
        record = fleet_record.load(home, cluster)
        for name in names:
            if not record.find_member(name).is_instance:
                raise Failure(
                    f"{name} is not a proxy or an auth: `refloat fleet ps` lists the role of each process"
                )
        agents_by_id = {find_agent_id(record.cluster, agent): agent for agent in agents}
        advice_by_proxy = [
            (
                proxy,
                asyncio.run(
                    _advise_agents(record, proxy, auth, advisory_id, reason, list(agents_by_id), limit or 0)
                ),
            )
            for name in names
            for proxy, auth in _advising_proxies_of(record, name)
        ]
    except (FleetError, AdminError, TLSError) as error:
        raise Failure(str(error)) from error
    if as_json:
        print_json([{"name": name, "id": advisory_id, **asdict(advice)} for name, advice in advice_by_proxy])
        return
    for name, advice in advice_by_proxy:
        click.echo(f"{name}: {format_advice(advice, agents_by_id)}")
    click.echo(f"to continue or to check the progress, add: --id {advisory_id}")


def _advising_proxies_of(record: FleetRecord, name: str) -> list[tuple[str, str | None]]:
    """Return the proxies that advise agents to leave an instance, each with the id of the auth to leave, or None."""
    member = record.find_member(name)
    if member.role == "proxy":
        return [(name, None)]
    return [(proxy.name, member.id) for proxy in record.members if proxy.role == "proxy"]


async def _advise_agents(
    record: FleetRecord,
    name: str,
    auth: str | None,
    advisory_id: str,
    reason: str,
    agent_ids: Collection[str],
    limit: int,
) -> ReconnectAdviceResult:
    with explain_unreachable(record, name):
        async with open_channel_to(record, name) as channel:
            admin = TunnelAdminClient(channel)
            if auth is not None:
                return await admin.advise_auth_reconnect(
                    advisory_id, reason, auth, agent_ids=agent_ids, limit=limit
                )
            return await admin.advise_reconnect(advisory_id, reason, agent_ids=agent_ids, limit=limit)


def find_agent_id(cluster: str, name_or_id: str) -> str:
    """Return the id of an agent of a local fleet, where ids are derived from names. An id is returned as it is."""
    try:
        return str(uuid.UUID(name_or_id))
    except ValueError:
        return host_id(cluster, "agent", name_or_id)


def format_advice(advice: ReconnectAdviceResult, agents_by_id: Mapping[str, str]) -> str:
    """Return the counts of a proxy's advice, and the absent agents as they were given: `agents_by_id`."""
    absent_agents = [agents_by_id.get(agent_id, agent_id) for agent_id in advice.absent_ids]
    absent_text = ", ".join(absent_agents[:_MAX_LISTED_AGENTS])
    if len(absent_agents) > _MAX_LISTED_AGENTS:
        absent_text += ", ..."
    parts = [f"{advice.advised_count} agents advised"]
    for count, description in (
        (advice.already_advised_count, "advised before and not moved yet"),
        (advice.remaining_count, "left for a later run"),
        (
            advice.absent_count,
            f"not connected to this proxy ({absent_text})" if absent_text else "not connected to this proxy",
        ),
        (advice.staying_count, "without another destination"),
        (advice.moved_count, "moved to another auth"),
        (advice.elsewhere_count, "on other auths"),
    ):
        if count:
            parts.append(f"{count} {description}")
    return ", ".join(parts)
