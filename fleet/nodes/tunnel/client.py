"""Tunnel client without a fleet: registers targets (behind NAT), or opens sessions to others' targets."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field

import grpc.aio

from fleet.nodes.shared import addresses, lifecycle
from fleet.nodes.shared.stdio import open_stdio
from fleet.nodes.tunnel.flags import LocalForward, Service, spell_target
from fleet.nodes.tunnel.server import make_dial_handler
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.transport import channels
from fleet.transport.tls import TLSFiles
from fleet.transport.tunnel import options
from fleet.transport.tunnel.client import TunnelClient
from fleet.transport.tunnel.link import LinkSettings, TunnelLink, TunnelSpec
from fleet.transport.tunnel.listener import TunnelListener
from fleet.transport.tunnel.pump import SessionPolicy, pump
from fleet.transport.tunnel.stream import TunnelStream

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """Settings that `refloat tunnel register` and `dial` share."""

    server: tuple[str, int]
    wire: WireVersion = WireVersion.V0_2
    tls: TLSFiles = field(default_factory=TLSFiles)
    policy: SessionPolicy = field(default_factory=SessionPolicy)
    link_settings: LinkSettings = field(default_factory=LinkSettings)
    name: str = ""

    def open_channel(self) -> grpc.aio.Channel:
        """Return a new connection to the server. Raises TLSError."""
        target = channels.target_of([self.server])
        return channels.open_channel(target, self.tls, extra_options=options.channel_options())


async def register(plan: ClientPlan, services: Sequence[Service]) -> None:
    """Stay registered and serve until SIGTERM or SIGINT. The ready line lists the targets. Raises TLSError."""
    address_by_target = {service.target: service.address for service in services}
    # Version 0.1 has no targets: its servers offer sessions to every client.
    targets = () if plan.wire is WireVersion.V0_1 else tuple(address_by_target)
    spec = TunnelSpec(
        wire=plan.wire,
        targets=targets,
        handler=make_dial_handler(address_by_target, plan.wire, plan.policy, "client"),
        name=plan.name or _make_run_name(plan),
    )
    up_event = asyncio.Event()
    link = _make_link(plan, spec, up_event)

    async def work() -> None:
        await up_event.wait()
        refused_targets = {
            spell_target(target): reason for target, reason in sorted(link.rejected_targets.items())
        }
        registered_targets = sorted(link.registered_targets) if targets else address_by_target
        lifecycle.print_ready_line(
            role="tunnel-target",
            targets=[spell_target(target) for target in registered_targets],
            refused=refused_targets,
        )
        await lifecycle.wait_for_stop_signal()

    await _run_beside(link.run(), work())


def _make_run_name(plan: ClientPlan) -> str:
    """Return a random name by which the server recognizes this process after a lost connection.

    A certificate proves the same more reliably, and across restarts: then the name is empty.
    """
    return "" if plan.tls.certificate else secrets.token_urlsafe(12)


async def forward(plan: ClientPlan, forwards: Sequence[LocalForward]) -> None:
    """Listen on local ports and forward connections, until SIGTERM or SIGINT. Raises NodeStartError, TLSError."""
    up_event = asyncio.Event()
    link = _make_link(plan, TunnelSpec(wire=plan.wire, name=plan.name), up_event)

    async def work() -> None:
        listeners = [await _start_listener(link, local_forward, plan) for local_forward in forwards]
        forward_addresses = {
            spell_target(local_forward.target): addresses.join(local_forward.listen[0], listener.port)
            for local_forward, listener in zip(forwards, listeners, strict=True)
        }
        await up_event.wait()
        lifecycle.print_ready_line(role="tunnel-dialler", forwards=forward_addresses)
        await lifecycle.wait_for_stop_signal()
        for listener in listeners:
            await listener.stop()

    await _run_beside(link.run(), work())


def _make_link(plan: ClientPlan, spec: TunnelSpec, up_event: asyncio.Event) -> TunnelLink:
    def on_up_change(is_up: bool, reason: str) -> None:
        if is_up:
            up_event.set()
            log.info("the tunnel is up")
        else:
            log.warning("the tunnel is down: %s; trying again", reason)

    return TunnelLink(plan.open_channel, spec, settings=plan.link_settings, on_up_change=on_up_change)


async def _start_listener(link: TunnelLink, local_forward: LocalForward, plan: ClientPlan) -> TunnelListener:
    async def open_session() -> TunnelStream:
        try:
            return await link.open_session(local_forward.target, within=plan.link_settings.up_within)
        except TimeoutError:
            raise TunnelError("the tunnel is down") from None

    listener = TunnelListener(open_session, plan.policy)
    return await lifecycle.start_listening(local_forward.listen, listener.start(*local_forward.listen))


async def carry_stdio(plan: ClientPlan, target: Target) -> None:
    """Copy standard input and output through one session until it ends. Raises TLSError, TunnelError."""
    async with plan.open_channel() as channel:
        client = TunnelClient(channel, plan.wire, name=plan.name)

        async def work() -> None:
            if plan.wire is WireVersion.V0_1:
                # In version 0.2, a server may send nothing until it is asked for a session.
                await client.wait_until_up()
            stream = await client.open_session(target)
            stdio = await open_stdio()
            await pump(stdio.connection, stream, plan.policy)
            await stdio.wait_until_written()

        try:
            await _run_beside(client.run(), work())
        finally:
            await client.close()


async def _run_beside(carrier: Coroutine[None, None, None], work: Coroutine[None, None, None]) -> None:
    """Do `work` while `carrier` runs. Raises what either raised, or TunnelError if the carrier ended first."""
    carrier_task = asyncio.create_task(carrier)
    await asyncio.sleep(0)  # start it, so that sessions can be opened
    work_task = asyncio.create_task(work)
    try:
        await asyncio.wait((carrier_task, work_task), return_when=asyncio.FIRST_COMPLETED)
        if carrier_task.done() and not (work_task.done() and work_task.exception() is None):
            carrier_task.result()
            raise TunnelError("the server closed the tunnel")
        work_task.result()
    finally:
        for task in (carrier_task, work_task):
            task.cancel()
        await asyncio.gather(carrier_task, work_task, return_exceptions=True)
