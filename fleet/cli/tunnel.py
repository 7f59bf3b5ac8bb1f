"""`refloat tunnel`: TCP over gRPC, without a fleet. docs/reference/tunnel.md."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

import click
import uvloop

from fleet.cli.output import Failure
from fleet.nodes.shared import lifecycle
from fleet.nodes.shared.addresses import ADDRESS, listen_option
from fleet.nodes.shared.flags import POSITIVE_DURATION, client_tls_options, server_tls_options
from fleet.nodes.shared.options import combine
from fleet.nodes.tunnel import client as tunnel_client
from fleet.nodes.tunnel import server as tunnel_server
from fleet.nodes.tunnel.client import ClientPlan
from fleet.nodes.tunnel.flags import CLAIM, FORWARD, SERVICE, TARGET, Claim, LocalForward, Service
from fleet.nodes.tunnel.server import ServerPlan
from fleet.processes import log_format
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.transport.channels import KeepaliveSettings
from fleet.transport.tls import TLSError, TLSFiles
from fleet.transport.tunnel.link import LinkSettings
from fleet.transport.tunnel.pump import HalfClosePolicy, SessionPolicy
from fleet.transport.tunnel.stream import TunnelAbortedError

_WIRE_VERSION_CHOICE = click.Choice([wire.value for wire in WireVersion])


class _SessionFailed(Failure):
    """A session or tunnel that was established and then aborted. Exit code 1."""

    exit_code = 1


def _run(work: Coroutine[None, None, None]) -> None:
    """Run `work`. Exit code 2 for an error that the user can fix, 1 for a session or tunnel that was aborted."""
    logging.basicConfig(level=logging.INFO, handlers=[log_format.create_handler()])
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
        help="If the tunnel peer does not support half-close, and the local end has sent everything: close the session "
        "at once (close), or when the remote end has finished (defer).",
    ),
    click.option(
        "--idle-timeout",
        "idle_timeout",
        type=POSITIVE_DURATION,
        help="Close a session that carried no data for this time. Default: never.",
    ),
    click.option(
        "--ping-interval",
        "ping_interval",
        type=POSITIVE_DURATION,
        default="10s",
        show_default=True,
        help="Time between two pings of the tunnel peer.",
    ),
    click.option(
        "--ping-timeout",
        type=POSITIVE_DURATION,
        default="10s",
        show_default=True,
        help="Time to wait for the answer to a ping.",
    ),
)


_client_options = combine(
    click.option("--server", type=ADDRESS, required=True, help="Address of the tunnel server."),
    click.option(
        "--wire",
        type=_WIRE_VERSION_CHOICE,
        default=WireVersion.V0_2.value,
        show_default=True,
        help="Version of the wire protocol.",
    ),
    click.option(
        "--name",
        default="",
        help="Name of this client, by which a Refloat server recognizes it when it reconnects.",
    ),
    client_tls_options,
    _policy_options,
)


def _create_client_plan(
    server: tuple[str, int],
    wire: str,
    on_end: str,
    idle_timeout: float | None,
    ping_interval: float,
    ping_timeout: float,
    name: str,
    tls: TLSFiles,
) -> ClientPlan:
    link_settings = LinkSettings(probe_interval=ping_interval, probe_within=ping_timeout)
    return ClientPlan(
        server,
        WireVersion(wire),
        tls,
        SessionPolicy(HalfClosePolicy(on_end), idle_timeout),
        link_settings,
        name,
    )


@click.group()
def tunnel() -> None:
    """Carry TCP over gRPC: serve, register and dial targets."""


@tunnel.command()
@listen_option("--listen", "gRPC address; port 0 picks a free port.")
@listen_option(
    "--diag-listen", "Listen address of /healthz, /readyz, /metrics and /targets; port 0 picks a free port."
)
@click.option(
    "--forward",
    "forwards",
    type=FORWARD,
    multiple=True,
    help="Local port whose connections become sessions to a registered target (repeatable).",
)
@click.option(
    "--service",
    "services",
    type=SERVICE,
    multiple=True,
    help="Target that this server serves itself, for clients that dial it (repeatable).",
)
@click.option(
    "--bridge/--no-bridge",
    default=True,
    show_default=True,
    help="Let clients dial targets that other clients registered.",
)
@click.option(
    "--claim",
    "claims",
    type=CLAIM,
    multiple=True,
    help="Allow clients whose certificate has the name IDENTITY to register targets that match PATTERN (repeatable). "
    "With --tls-ca, clients may always register the targets that their certificate names.",
)
@click.option(
    "--allow-anonymous",
    is_flag=True,
    help="Allow every client to register any target. Always so on loopback; required on other addresses without "
    "--tls-ca.",
)
@click.option(
    "--wire",
    "wires",
    type=_WIRE_VERSION_CHOICE,
    multiple=True,
    default=[WireVersion.V0_2.value],
    show_default=True,
    help="Version of the wire protocol (repeatable). The first is used for clients that do not name their version.",
)
@_policy_options
@server_tls_options
def serve(
    listen: tuple[str, int],
    diag_listen: tuple[str, int],
    forwards: tuple[LocalForward, ...],
    services: tuple[Service, ...],
    bridge: bool,
    claims: tuple[Claim, ...],
    allow_anonymous: bool,
    wires: tuple[str, ...],
    on_end: str,
    idle_timeout: float | None,
    ping_interval: float,
    ping_timeout: float,
    tls: TLSFiles,
) -> None:
    """Run a tunnel server until Ctrl-C.

    Clients register targets, and local ports of the server lead to these targets.
    """
    policy = SessionPolicy(HalfClosePolicy(on_end), idle_timeout)
    keepalive = KeepaliveSettings(ping_interval, ping_timeout)
    wire_versions = [WireVersion(wire) for wire in dict.fromkeys(wires)]
    if claims and tls.authority is None:
        raise click.UsageError(
            "--claim needs --tls-ca: without certificates, clients cannot prove their name"
        )
    if allow_anonymous and tls.authority is not None:
        raise click.UsageError(
            "--allow-anonymous and --tls-ca exclude each other: to let one client register any target, use "
            "--claim 'NAME=*'"
        )
    plan = ServerPlan(
        listen,
        wire_versions,
        tls,
        forwards,
        services,
        claims,
        allow_anonymous,
        bridge,
        policy,
        keepalive,
        diag_listen,
    )
    _run(tunnel_server.serve(plan))


@tunnel.command()
@click.option(
    "--target",
    "services",
    type=SERVICE,
    multiple=True,
    required=True,
    help="Target and its TCP service (repeatable).",
)
@_client_options
def register(services: tuple[Service, ...], **flags: Any) -> None:
    """Register targets with a server until Ctrl-C.

    Each session is connected to the service of its target.
    """
    _run(tunnel_client.register(_create_client_plan(**flags), services))


@tunnel.command()
@click.argument("target", type=TARGET, required=False)
@click.option(
    "--forward",
    "forwards",
    type=FORWARD,
    multiple=True,
    help="Local port whose connections become sessions to a target (repeatable).",
)
@_client_options
def dial(target: Target | None, forwards: tuple[LocalForward, ...], **flags: Any) -> None:
    """Dial targets that are registered with a server.

    With TARGET, open one session on standard input and output. With --forward, open a session for each connection to
    a local port.

    With SSH: ssh -o ProxyCommand='refloat tunnel dial --server HOST:PORT router-7:SSH' router-7
    """
    if (target is None) == (not forwards):
        raise click.UsageError("give either one TARGET or --forward")
    plan = _create_client_plan(**flags)
    if target is None:
        _run(tunnel_client.forward(plan, forwards))
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _run(tunnel_client.carry_stdio(plan, target))
