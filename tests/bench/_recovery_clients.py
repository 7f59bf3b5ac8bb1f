"""Many balanced channels in a process of their own, for the bench `recovery`.

    python -m tests.bench._recovery_clients HOST:PORT COUNT FIRST_WAIT|upstream|bare|floor

`bare` ones have no policy to ask for and do not watch the second connection: one RPC over it. `floor` is what gRPC
alone takes for all that ours do: they ask, watch and call there, a few at a time, and leave the old connections open.

Says `{"ready": COUNT}` when all are connected and healthy. For each line on stdin, which names a sick auth, it answers
at once, and again when the first RPC of each channel was answered by another: `{"answered": [...]}`, by the machine's
monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import Any

import grpc.aio
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.nodes.shared import lifecycle
from fleet.processes import garbage
from fleet.protocol.recovery.pick_healthy import DEFAULTS, BalancerSettings
from fleet.transport import channels
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.pick_healthy.channel_factory import open_channel
from fleet.transport.service_config import GET_CONFIG_METHOD
from tests.bench._recovery_auths import NAME_METHOD

#: Limits concurrent connects: they are not measured.
_CONNECTING = asyncio.Semaphore(50)
_TIMEOUT = 30.0
#: So many of `floor` move at a time, in each process.
_MOVING = asyncio.Semaphore(8)


class Client:
    """One agent's auth connection. As an agent's heartbeat does, its RPC follows the move."""

    def __init__(self, address: tuple[str, int], settings: BalancerSettings) -> None:
        self._change_event = asyncio.Event()
        self.channel: PickHealthyChannel = open_channel(
            [address], settings=settings, on_change=self._change_event.set
        )

    async def connect(self) -> None:
        """Connect, and be healthy."""
        async with _CONNECTING:
            self.channel.connect()
            await self.channel.config_response_event.wait()
            await self.channel.channel_ready()

    async def await_other_auth(self, sick: str) -> float:
        """Return the moment when another auth first responded to an RPC."""
        ask_name = self.channel.unary_unary(NAME_METHOD)
        before = self.channel.connection_id
        while True:
            self._change_event.clear()
            if self.channel.connection_id != before:
                before = self.channel.connection_id
                answer: bytes = await ask_name(b"", timeout=_TIMEOUT)
                if answer.decode() != sick:
                    return time.monotonic()
            await self._change_event.wait()


class BareClient:
    """A channel and a health watch; when that turns, another channel and an RPC, within the same wait as ours."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.channel = channels.open_channel(address)
        self._watch: Any = None

    async def connect(self) -> None:
        """Connect, and be healthy."""
        async with _CONNECTING:
            await self.channel.channel_ready()
            self._watch = health_pb2_grpc.HealthStub(self.channel).Watch(health_pb2.HealthCheckRequest())
            assert (await self._watch.read()).status == health_pb2.HealthCheckResponse.SERVING

    async def await_other_auth(self, sick: str) -> float:
        """Return the moment when another auth responded; the balancer may choose the unhealthy auth again."""
        while (await self._watch.read()).status == health_pb2.HealthCheckResponse.SERVING:
            pass
        old, wait = self.channel, random.random() * (DEFAULTS.first_wait or 0)
        while True:
            await asyncio.sleep(wait)
            wait = 0.0
            self.channel = channels.open_channel(self._address)
            ask_name: Any = self.channel.unary_unary(NAME_METHOD)
            answer: bytes = await ask_name(b"", wait_for_ready=True, timeout=_TIMEOUT)
            at = time.monotonic()
            if answer.decode() != sick:
                await old.close()
                return at
            await self.channel.close()


class FloorClient(BareClient):
    """Bare, with the RPCs of ours and in the order of ours."""

    async def await_other_auth(self, sick: str) -> float:
        """Return the moment when another auth responded, after its service config and health."""
        while (await self._watch.read()).status == health_pb2.HealthCheckResponse.SERVING:
            pass
        wait = random.random() * (DEFAULTS.first_wait or 0)
        while True:
            await asyncio.sleep(wait)
            wait = 0.0
            async with _MOVING:
                self._old_connection = self.channel, self._watch
                channel = channels.open_channel(self._address, extra_options=channels.fixed_window_options())
                at = await self._ask_all(channel, sick)
            if at is not None:
                self.channel = channel
                return at
            await channel.close()

    async def _ask_all(self, channel: grpc.aio.Channel, sick: str) -> float | None:
        config: Any = channel.unary_unary(GET_CONFIG_METHOD)(b"", wait_for_ready=True, timeout=_TIMEOUT)
        watch: Any = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(), wait_for_ready=True
        )
        healthy = (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        await config
        ask_name: Any = channel.unary_unary(NAME_METHOD)
        answer: bytes = await ask_name(b"", timeout=_TIMEOUT)
        at = time.monotonic()
        self._watch = watch
        return at if healthy and answer.decode() != sick else None


def _clients(address: str, count: int, wait: str) -> list[Client] | list[BareClient] | list[FloorClient]:
    if wait in {"bare", "floor"}:
        kind = BareClient if wait == "bare" else FloorClient
        return [kind(address) for _ in range(count)]
    host, _, port = address.rpartition(":")
    settings = BalancerSettings(first_wait=None if wait == "upstream" else float(wait))
    return [Client((host, int(port)), settings) for _ in range(count)]


async def run(address: str, count: int, wait: str) -> None:
    """Connect all, then follow commands until stdin ends."""
    clients = _clients(address, count, wait)
    await asyncio.gather(*(client.connect() for client in clients))
    print(json.dumps({"ready": count}), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while sick := (await reader.readline()).decode().strip():
        moves = [asyncio.wait_for(client.await_other_auth(sick), _TIMEOUT) for client in clients]
        print(json.dumps({"waiting": count}), flush=True)
        outcomes = await asyncio.gather(*moves, return_exceptions=True)
        print(json.dumps({"answered": [at for at in outcomes if isinstance(at, float)]}), flush=True)
    await asyncio.gather(*(client.channel.close() for client in clients))


if __name__ == "__main__":
    lifecycle.raise_file_limit()
    garbage.collect_less()  # as agents' processes do
    uvloop.run(run(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
