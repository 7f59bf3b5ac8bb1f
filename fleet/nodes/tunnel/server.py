"""Tunnel server without a fleet: clients register targets, and local ports lead to them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc.aio

from fleet.nodes.shared import addresses, http_site, lifecycle
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.nodes.tunnel.flags import Claim, LocalForward, Service, make_claims_rule, spell_target
from fleet.nodes.tunnel.site import TunnelServerView, tunnel_site
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.transport import channels, diag
from fleet.transport.channels import KeepaliveSettings
from fleet.transport.process import ProcessHealth
from fleet.transport.tls import TLSFiles
from fleet.transport.tunnel import handlers, options
from fleet.transport.tunnel.handlers import AcceptedSession, SessionHandler
from fleet.transport.tunnel.listener import TunnelListener
from fleet.transport.tunnel.pump import SessionPolicy
from fleet.transport.tunnel.server import TunnelServer, serve_tunnels
from fleet.transport.tunnel.stream import TunnelStream

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """Settings of `refloat tunnel serve`."""

    listen: tuple[str, int]
    #: Protocol versions. The first one is used for clients that do not name a version.
    wires: Sequence[WireVersion]
    tls: TLSFiles
    forwards: Sequence[LocalForward]
    services: Sequence[Service]
    #: Permissions to register targets, in addition to those named like the client's certificate.
    claims: Sequence[Claim]
    #: Any client may register any target, on purpose.
    allow_anonymous: bool
    bridge: bool
    policy: SessionPolicy
    keepalive: KeepaliveSettings
    diag_listen: tuple[str, int] = ("127.0.0.1", 0)


async def serve(plan: ServerPlan) -> None:
    """Serve until SIGTERM or SIGINT. Raises NodeStartError, TLSError."""
    _require_authentication(plan)
    process = ProcessHealth(tick=1.0)
    process.register("tunnel-server")
    tunnel_servers = [_make_tunnel_server(plan, wire) for wire in plan.wires]
    server = grpc.aio.server(options=[*channels.server_options(), *options.server_options(plan.keepalive)])
    serve_tunnels(server, *tunnel_servers)
    try:
        port = channels.add_port(server, addresses.join(*plan.listen), plan.tls)
    except RuntimeError as error:
        raise NodeStartError(
            f"cannot listen on {addresses.join(*plan.listen)}: the port is in use, or this user may not use it"
        ) from error
    await server.start()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(server.stop, grace=0)
        forward_addresses = {}
        for forward in plan.forwards:
            listener = await start_listener(forward, tunnel_servers, plan.policy)
            stack.push_async_callback(listener.stop)
            forward_addresses[forward.target] = addresses.join(forward.listen[0], listener.port)
        services = {service.target: addresses.join(*service.address) for service in plan.services}
        site = tunnel_site(
            process,
            diag.create_registry(process),
            TunnelServerView(tunnel_servers, forward_addresses, services),
        )
        diag_address = await stack.enter_async_context(http_site.serve(site, plan.diag_listen))
        process.record_success("tunnel-server", asyncio.get_running_loop().time())
        if plan.tls.authority is None:
            log.warning("clients do not authenticate without --tls-ca: any client may register any target")
        claim_policy = "anonymous" if plan.tls.authority is None else "certificate"
        lifecycle.print_ready_line(
            role="tunnel-server",
            listen=addresses.join(plan.listen[0], port),
            diag=diag_address,
            claims=claim_policy,
            forwards={spell_target(target): address for target, address in forward_addresses.items()},
        )
        await lifecycle.wait_for_stop_signal()


def _require_authentication(plan: ServerPlan) -> None:
    """Check that clients authenticate unless the port is on loopback or `allow_anonymous`.

    Raises NodeStartError.
    """
    if plan.tls.authority is None and not plan.allow_anonymous and not addresses.is_loopback(plan.listen[0]):
        raise NodeStartError(
            f"without --tls-ca, any client that reaches {plan.listen[0]} could register any target and receive its "
            "sessions: set --tls-ca, or --allow-anonymous to allow this"
        )


def _make_tunnel_server(plan: ServerPlan, wire: WireVersion) -> TunnelServer:
    services = {service.target: service.address for service in plan.services}
    return TunnelServer(
        wire,
        handler=make_dial_handler(services, wire, plan.policy, "tunnel server") if services else None,
        local=services,
        bridge=plan.bridge,
        may_claim=None if plan.tls.authority is None else make_claims_rule(plan.claims),
        on_target=_log_target_registration,
    )


def _log_target_registration(target: Target, is_registered: bool) -> None:
    log.info("target %s %s", target, "registered" if is_registered else "deregistered")


def make_dial_handler(
    services: Mapping[Target, tuple[str, int]], wire: WireVersion, policy: SessionPolicy, owner: str
) -> SessionHandler:
    """Return a handler that connects each session to its service. Version 0.1 knows only names.

    `owner` is the noun of this end for the errors that the requester gets: the services are on its host.
    """
    address_by_name = {target.name: address for target, address in services.items()}

    async def accept_session(target: Target) -> AcceptedSession:
        address = address_by_name.get(target.name) if wire is WireVersion.V0_1 else services.get(target)
        if address is None:
            raise TunnelError(f"the {owner} does not serve target {target}")
        try:
            return await handlers.dial(*address, policy)
        except TunnelError as error:
            raise TunnelError(f"the {owner} of target {target} does not reach its service: {error}") from None

    return accept_session


async def start_listener(
    forward: LocalForward, tunnel_servers: Sequence[TunnelServer], policy: SessionPolicy
) -> TunnelListener:
    """Listen on the port of a forward. Raises NodeStartError."""

    async def open_session() -> TunnelStream:
        refusals = []
        for tunnel_server in tunnel_servers:
            try:
                return await tunnel_server.open_session(forward.target)
            except TunnelError as error:
                refusals.append(str(error))
        raise TunnelError("; ".join(refusals))

    return await lifecycle.start_listening(
        forward.listen, TunnelListener(open_session, policy).start(*forward.listen)
    )
