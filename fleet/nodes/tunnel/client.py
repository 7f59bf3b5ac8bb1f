"""A tunnel's client without a fleet: behind NAT it registers targets; elsewhere it asks for sessions to others'."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field

import grpc.aio

from fleet.nodes.shared import addresses, lifecycle
from fleet.nodes.shared.stdio import open_stdio
from fleet.nodes.tunnel.flags import Forward, Service, spell_target
from fleet.nodes.tunnel.server import dialling
from fleet.protocol.tunnel.messages import Target, TunnelError, Wire
from fleet.transport import channels
from fleet.transport.tls import TLSFiles
from fleet.transport.tunnel import options
from fleet.transport.tunnel.client import TunnelClient
from fleet.transport.tunnel.link import Keeping, Link, TunnelSpec
from fleet.transport.tunnel.listener import Listener
from fleet.transport.tunnel.pump import Policy, pump
from fleet.transport.tunnel.stream import TunnelStream

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """What `refloat tunnel register` and `dial` are told in common."""

    server: tuple[str, int]
    wire: Wire = Wire.V0_2
    tls: TLSFiles = field(default_factory=TLSFiles)
    policy: Policy = field(default_factory=Policy)
    keeping: Keeping = field(default_factory=Keeping)
    name: str = ""

    def open_channel(self) -> grpc.aio.Channel:
        """A connection of its own to the server. Raises TLSError."""
        target = channels.target_of([self.server])
        return channels.open_channel(target, self.tls, more=options.channel_options())


async def register(plan: ClientPlan, services: Sequence[Service]) -> None:
    """Stay registered and serve until SIGTERM or SIGINT; the ready line says what is registered. Raises TLSError."""
    by_target = {service.target: service.to for service in services}
    # Version 0.1 has no targets: its servers ask every client.
    targets = () if plan.wire is Wire.V0_1 else tuple(by_target)
    spec = TunnelSpec(
        wire=plan.wire,
        targets=targets,
        handler=dialling(by_target, plan.wire, plan.policy),
        name=plan.name or _name_of_this_run(plan),
    )
    up = asyncio.Event()
    link = _link(plan, spec, up)

    async def work() -> None:
        await up.wait()
        refused = {spell_target(target): reason for target, reason in sorted(link.refused.items())}
        registered = sorted(link.registered) if targets else by_target
        lifecycle.announce(
            role="tunnel-target", targets=[spell_target(target) for target in registered], refused=refused
        )
        await lifecycle.until_told_to_end()

    await _beside(link.run(), work())


def _name_of_this_run(plan: ClientPlan) -> str:
    """Return a name by which a server of ours knows this process when its connection is lost and it comes back.

    A certificate proves that better, and across restarts: with one there is no name.
    """
    return "" if plan.tls.certificate else secrets.token_urlsafe(12)


async def forward(plan: ClientPlan, forwards: Sequence[Forward]) -> None:
    """Listen on local ports whose connections become sessions, until SIGTERM or SIGINT. Raises StartError, TLSError."""
    up = asyncio.Event()
    link = _link(plan, TunnelSpec(wire=plan.wire, name=plan.name), up)

    async def work() -> None:
        listeners = [await _listen(link, wanted, plan) for wanted in forwards]
        ports = {
            spell_target(wanted.target): addresses.join(wanted.listen[0], listener.port)
            for wanted, listener in zip(forwards, listeners, strict=True)
        }
        await up.wait()
        lifecycle.announce(role="tunnel-dialler", forwards=ports)
        await lifecycle.until_told_to_end()
        for listener in listeners:
            await listener.stop()

    await _beside(link.run(), work())


def _link(plan: ClientPlan, spec: TunnelSpec, up: asyncio.Event) -> Link:
    def on_up(is_up: bool, why: str) -> None:
        if is_up:
            up.set()
        log.info("the tunnel is up" if is_up else f"the tunnel is down: {why}")

    return Link(plan.open_channel, spec, keeping=plan.keeping, on_up=on_up)


async def _listen(link: Link, wanted: Forward, plan: ClientPlan) -> Listener:
    async def open_session() -> TunnelStream:
        try:
            return await link.open_session(wanted.target, within=plan.keeping.up_within)
        except TimeoutError:
            raise TunnelError("the tunnel is down") from None

    listener = Listener(open_session, plan.policy)
    return await lifecycle.listening(wanted.listen, listener.start(*wanted.listen))


async def carry_stdio(plan: ClientPlan, target: Target) -> None:
    """Carry standard input and output over one session to its end. Raises TLSError, TunnelError."""
    async with plan.open_channel() as channel:
        client = TunnelClient(channel, plan.wire, name=plan.name)

        async def work() -> None:
            if plan.wire is Wire.V0_1:
                # In version 0.2 a server may say nothing until it is asked for something.
                await client.wait_until_up()
            stream = await client.open_session(target)
            stdio = await open_stdio()
            await pump(stdio.wire, stream, plan.policy)
            await stdio.written()

        try:
            await _beside(client.run(), work())
        finally:
            await client.close()


async def _beside(carrier: Coroutine[None, None, None], work: Coroutine[None, None, None]) -> None:
    """Do `work` while `carrier` runs. Raises what either raised, or TunnelError when the carrier ended first."""
    carrying = asyncio.create_task(carrier)
    await asyncio.sleep(0)  # it begins, so that it may be asked for sessions
    working = asyncio.create_task(work)
    try:
        await asyncio.wait((carrying, working), return_when=asyncio.FIRST_COMPLETED)
        if carrying.done() and not (working.done() and working.exception() is None):
            carrying.result()
            raise TunnelError("the server ended the tunnel")
        working.result()
    finally:
        for task in (carrying, working):
            task.cancel()
        await asyncio.gather(carrying, working, return_exceptions=True)
