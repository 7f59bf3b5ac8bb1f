"""`refloat tunnel`: TCP over gRPC without a fleet. docs/tunnel.md."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

import click
import uvloop

from fleet.cli.answers import Failure
from fleet.nodes.shared import lifecycle
from fleet.nodes.shared.addresses import ADDRESS, listen_option
from fleet.nodes.shared.flags import POSITIVE, tls_options
from fleet.nodes.shared.options import combine
from fleet.nodes.tunnel import client as tunnel_client
from fleet.nodes.tunnel import server as tunnel_server
from fleet.nodes.tunnel.client import ClientPlan
from fleet.nodes.tunnel.flags import CLAIM, FORWARD, SERVICE, TARGET, Claim, LocalForward, Service
from fleet.nodes.tunnel.server import ServerPlan
from fleet.processes import log_format
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.transport.channels import DeadPeer
from fleet.transport.tls import TLSError, TLSFiles
from fleet.transport.tunnel.link import LinkSettings
from fleet.transport.tunnel.pump import HalfClosePolicy, SessionPolicy
from fleet.transport.tunnel.stream import TunnelAbortedError

_WIRES = click.Choice([wire.value for wire in WireVersion])


class _SessionFailed(Failure):
    """It began, and did not end well."""

    exit_code = 1


def _run(work: Coroutine[None, None, None]) -> None:
    """Do it; what the person can mend is one line and exit code 2, a session or tunnel that broke is 1."""
    logging.basicConfig(level=logging.INFO, handlers=[log_format.handler()])
    lifecycle.raise_file_limit()
    try:
        uvloop.run(work)
    except TunnelAbortedError as error:
        raise _SessionFailed(f"the session was aborted: {error}") from error
    except (lifecycle.NodeStartError, TLSError, TunnelError) as error:
        raise Failure(str(error)) from error


_policy_options = combine(
    click.option(
        "--on-end",
        type=click.Choice([closing.value for closing in HalfClosePolicy]),
        default=HalfClosePolicy.CLOSE.value,
        show_default=True,
        help="When our TCP end has sent everything, and the peer of the tunnel cannot half-close: close the "
        "session at once, or defer that until the other end is finished.",
    ),
    click.option(
        "--idle",
        type=POSITIVE,
        help="Close a session that carried nothing for so long; default: never.",
    ),
    click.option(
        "--ping-every",
        type=POSITIVE,
        default="10s",
        show_default=True,
        help="How often the other end is asked whether it is there.",
    ),
    click.option(
        "--ping-timeout",
        type=POSITIVE,
        default="10s",
        show_default=True,
        help="For the answer to that.",
    ),
)


_client_options = combine(
    click.option("--server", type=ADDRESS, required=True, help="Where the tunnel's server listens."),
    click.option(
        "--wire", type=_WIRES, default=WireVersion.V0_2.value, show_default=True, help="Version of the wire."
    ),
    click.option("--name", default="", help="What a server of ours knows this client by when it comes back."),
    tls_options,
    _policy_options,
)


def _client_plan(
    server: tuple[str, int],
    wire: str,
    on_end: str,
    idle: float | None,
    ping_every: float,
    ping_timeout: float,
    name: str,
    tls: TLSFiles,
) -> ClientPlan:
    link_settings = LinkSettings(probe_every=ping_every, probe_within=ping_timeout)
    return ClientPlan(server, WireVersion(wire), tls, SessionPolicy(HalfClosePolicy(on_end), idle), link_settings, name)


@click.group()
def tunnel() -> None:
    """Carry TCP over gRPC: serve a tunnel, register targets behind NAT, dial them."""


@tunnel.command()
@listen_option("--listen", "gRPC port; 0 is any.")
@click.option(
    "--forward",
    "forwards",
    type=FORWARD,
    multiple=True,
    help="A local port whose connections become sessions to a registered target; repeat.",
)
@click.option(
    "--service",
    "services",
    type=SERVICE,
    multiple=True,
    help="A target of this server's own, for clients that ask for sessions; repeat.",
)
@click.option(
    "--bridge/--no-bridge", default=True, show_default=True, help="Connect clients with others' targets."
)
@click.option(
    "--claim",
    "claims",
    type=CLAIM,
    multiple=True,
    help="Who has this name in its certificate may register targets that match, too; repeat. With --tls-ca a client "
    "may register targets that its certificate names, by themselves.",
)
@click.option(
    "--anybody",
    is_flag=True,
    help="Let anybody who can connect register any target. Without --tls-ca it is so; off loopback only if you say so.",
)
@click.option(
    "--wire",
    "wires",
    type=_WIRES,
    multiple=True,
    default=[WireVersion.V0_2.value],
    show_default=True,
    help="Version of the wire; repeat for both. The first is for clients that do not say which they speak.",
)
@_policy_options
@tls_options
def serve(
    listen: tuple[str, int],
    forwards: tuple[LocalForward, ...],
    services: tuple[Service, ...],
    bridge: bool,
    claims: tuple[Claim, ...],
    anybody: bool,
    wires: tuple[str, ...],
    on_end: str,
    idle: float | None,
    ping_every: float,
    ping_timeout: float,
    tls: TLSFiles,
) -> None:
    """Run a tunnel's server until Ctrl-C: clients register with it, local ports lead to their targets."""
    policy = SessionPolicy(HalfClosePolicy(on_end), idle)
    dead_peer = DeadPeer(ping_every, ping_timeout)
    wire_versions = [WireVersion(wire) for wire in dict.fromkeys(wires)]
    if claims and tls.authority is None:
        raise click.UsageError("--claim needs --tls-ca: without certificates nobody proves who it is")
    if anybody and tls.authority is not None:
        raise click.UsageError(
            "--anybody and --tls-ca contradict each other: --claim 'NAME=*' opens it to one"
        )
    plan = ServerPlan(listen, wire_versions, tls, forwards, services, claims, anybody, bridge, policy, dead_peer)
    _run(tunnel_server.serve(plan))


@tunnel.command()
@click.option(
    "--target",
    "services",
    type=SERVICE,
    multiple=True,
    required=True,
    help="A target and its TCP service; repeat.",
)
@_client_options
def register(services: tuple[Service, ...], **flags: Any) -> None:
    """Register targets with a server until Ctrl-C, and connect each session to the target's service."""
    _run(tunnel_client.register(_client_plan(**flags), services))


@tunnel.command()
@click.argument("target", type=TARGET, required=False)
@click.option(
    "--forward",
    "forwards",
    type=FORWARD,
    multiple=True,
    help="A local port whose connections become sessions to a target; repeat.",
)
@_client_options
def dial(target: Target | None, forwards: tuple[LocalForward, ...], **flags: Any) -> None:
    """Ask a server for sessions: one to TARGET on standard input and output, or one per connection to a local port.

    As a ProxyCommand: ssh -o ProxyCommand='refloat tunnel dial --server HOST:PORT router-7:SSH' router-7
    """
    if (target is None) == (not forwards):
        raise click.UsageError("name either one TARGET or a --forward")
    plan = _client_plan(**flags)
    if target is None:
        _run(tunnel_client.forward(plan, forwards))
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _run(tunnel_client.carry_stdio(plan, target))
