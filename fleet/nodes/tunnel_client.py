"""A tunnel's client without a fleet: behind NAT it registers targets; elsewhere it asks for sessions to others'."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

from fleet.nodes import addresses, running
from fleet.nodes.stdio import open_stdio
from fleet.nodes.tunnel_server import dialling
from fleet.nodes.tunnel_words import Forward, Service, spell_target
from fleet.protocol.tunnel import Target, TunnelError, Wire
from fleet.transport import channels
from fleet.transport.channels import DeadPeer, TLSFiles
from fleet.transport.tunnel.client import TunnelClient
from fleet.transport.tunnel.handlers import Handler
from fleet.transport.tunnel.listener import Listener
from fleet.transport.tunnel.pump import Policy, pump
from fleet.transport.tunnel.stream import TunnelStream


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """What `refloat tunnel register` and `dial` are told in common."""

    server: tuple[str, int]
    wire: Wire
    tls: TLSFiles
    policy: Policy
    dead_peer: DeadPeer
    name: str = ""


async def register(plan: ClientPlan, services: Sequence[Service]) -> None:
    """Register and serve until SIGTERM or SIGINT. Raises TLSError, TunnelError."""
    by_target = {service.target: service.to for service in services}
    targets = [] if plan.wire is Wire.V0_1 else list(by_target)
    handler = dialling(by_target, plan.wire, plan.policy)

    async def work(client: TunnelClient) -> None:
        await client.wait_until_up()
        running.announce(role="tunnel-target", targets=[spell_target(target) for target in by_target])
        await running.until_told_to_end()

    await _run_for(work, plan, handler, targets)


async def forward(plan: ClientPlan, forwards: Sequence[Forward]) -> None:
    """Listen on local ports whose connections become sessions, until SIGTERM or SIGINT.

    Raises StartError, TLSError, TunnelError.
    """

    async def work(client: TunnelClient) -> None:
        await _until_asking_is_allowed(plan, client)
        listeners = [await _listen(client, wanted, plan.policy) for wanted in forwards]
        ports = {
            spell_target(wanted.target): addresses.join(wanted.listen[0], listener.port)
            for wanted, listener in zip(forwards, listeners, strict=True)
        }
        running.announce(role="tunnel-dialler", forwards=ports)
        await running.until_told_to_end()
        for listener in listeners:
            await listener.stop()

    await _run_for(work, plan)


async def carry_stdio(plan: ClientPlan, target: Target) -> None:
    """Carry standard input and output over one session to its end. Raises TLSError, TunnelError."""

    async def work(client: TunnelClient) -> None:
        await _until_asking_is_allowed(plan, client)
        stream = await client.open_session(target)
        stdio = await open_stdio()
        await pump(stdio.wire, stream, plan.policy)
        await stdio.written()

    await _run_for(work, plan)


async def _until_asking_is_allowed(plan: ClientPlan, client: TunnelClient) -> None:
    # In version 0.2 a server may say nothing until it is asked for something.
    if plan.wire is Wire.V0_1:
        await client.wait_until_up()


async def _listen(client: TunnelClient, wanted: Forward, policy: Policy) -> Listener:
    async def open_session() -> TunnelStream:
        return await client.open_session(wanted.target)

    return await running.listening(wanted.listen, Listener(open_session, policy).start(*wanted.listen))


async def _run_for(
    work: Callable[[TunnelClient], Coroutine[None, None, None]],
    plan: ClientPlan,
    handler: Handler | None = None,
    targets: Sequence[Target] = (),
) -> None:
    """Run a client until `work` with it is done. Raises what the client ended with, if it ended first."""
    async with channels.open_channel(channels.target_of([plan.server]), plan.tls, plan.dead_peer) as channel:
        client = TunnelClient(channel, plan.wire, handler=handler, name=plan.name)
        registered = asyncio.create_task(client.run(targets))
        await asyncio.sleep(0)  # it begins, so that sessions may be asked for
        doing = asyncio.create_task(work(client))
        try:
            await asyncio.wait((registered, doing), return_when=asyncio.FIRST_COMPLETED)
            if registered.done() and not (doing.done() and doing.exception() is None):
                registered.result()
                raise TunnelError("the server ended the tunnel")
            doing.result()
        finally:
            await client.close()
            for task in (registered, doing):
                task.cancel()
            await asyncio.gather(registered, doing, return_exceptions=True)
