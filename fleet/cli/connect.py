"""`refloat connect`: connect standard input and output to a service of an agent, for `ssh -o ProxyCommand`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click
import uvloop

from fleet.cli.home import cluster_option, home_option
from fleet.cli.local.members import console_tls_files_of
from fleet.cli.output import Failure
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetError, NoFleetError
from fleet.nodes.proxy.connect import access
from fleet.nodes.shared import addresses, connect_client
from fleet.nodes.shared.addresses import ADDRESS
from fleet.nodes.shared.connect_client import ConnectError, ConnectPlan, ServiceConnectionLostError
from fleet.nodes.shared.flags import client_tls_options
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.transport.tls import TLSError, TLSFiles


class _ConnectionAborted(Failure):
    """An established connection that was aborted. Exit code 1."""

    exit_code = 1


@click.command()
@click.argument("target", metavar="SERVICE.AGENT")
@click.option(
    "--proxy",
    "proxies",
    type=ADDRESS,
    multiple=True,
    help="CONNECT port of a proxy (repeatable). Default: the proxies of the local fleet, with its certificates.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with a token that the CONNECT port of the proxy accepts. [env: REFLOAT_CONNECT_TOKEN, the token itself]",
)
@client_tls_options
@cluster_option
@home_option
def connect(
    target: str,
    proxies: tuple[tuple[str, int], ...],
    token_file: Path | None,
    cluster: str,
    home: Path,
    tls: TLSFiles,
) -> None:
    """Connect standard input and output to a service of an agent.

    With SSH: ssh -o ProxyCommand='refloat connect ssh.agent-7' agent-7
    """
    try:
        if not proxies:
            proxies, tls = _load_local_proxies(cluster, home, tls)
        plan = ConnectPlan(target, proxies, _read_token(token_file), tls)
        with contextlib.suppress(KeyboardInterrupt):
            uvloop.run(connect_client.carry_stdio(plan))
    except ServiceConnectionLostError as error:
        raise _ConnectionAborted(f"the connection was aborted: {error}") from error
    except (ConnectError, TLSError, FleetError, NodeStartError) as error:
        raise Failure(str(error)) from error


def _load_local_proxies(
    cluster: str, home: Path, tls: TLSFiles
) -> tuple[tuple[tuple[str, int], ...], TLSFiles]:
    """Return the CONNECT ports of the local fleet, and the certificate to use. Raises FleetError."""
    try:
        record = fleet_record.load(home, cluster)
    except NoFleetError as error:
        raise Failure(f"{error}, or give --proxy for another fleet") from error
    proxies = tuple(addresses.parse(member.connect) for member in record.members if member.connect)
    return proxies, console_tls_files_of(record) if record.console and not tls.enabled else tls


def _read_token(path: Path | None) -> str:
    if path is None:
        return os.environ.get("REFLOAT_CONNECT_TOKEN", "").strip()
    return access.read_tokens(path, "--token-file")[0]
