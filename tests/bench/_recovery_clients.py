"""Many plain gRPC clients in a process of their own, for the bench `recovery`.

    python -m tests.bench._recovery_clients HOST:PORT COUNT bare|floor PREFIX

`bare` ones have no policy to ask for and do not watch the second connection: one heartbeat over it. `floor` is what
gRPC alone takes for all calls of an agent: they ask, watch and heartbeat there, a few at a time, and leave the old
connections open.

Says `{"ready": COUNT}` when all are connected, healthy and have sent a heartbeat. For each line on stdin, which names
a sick auth, each leaves it once it becomes unhealthy, until another auth has answered its heartbeat.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import uuid
from typing import Any

import grpc.aio
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet import __version__
from fleet.nodes.shared import lifecycle
from fleet.processes import garbage
from fleet.protocol.recovery.pick_healthy import DEFAULTS
from fleet.transport import channels
from fleet.transport.service_config import GET_CONFIG_METHOD
from fleet.wire import fleet_pb2, fleet_pb2_grpc

#: Limits concurrent connects: they are not measured.
_CONNECTING = asyncio.Semaphore(50)
_TIMEOUT = 30.0
#: So many of `floor` move at a time, in each process.
_MOVING = asyncio.Semaphore(8)


class BareClient:
    """A channel and a health watch; when that turns, another channel and an RPC, within the same wait as ours."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        # As large as that of an agent with a tunnel, and a tunnel lets the bench begin.
        policy = fleet_pb2.ClientPolicy(mode="reconnect", health_check=True, auth_id="auth-0")
        tracker = fleet_pb2.TrackerSummary(desired_count=1, claimed=[str(uuid.uuid4())], tracked=1)
        self._heartbeat = fleet_pb2.HeartbeatRequest(
            agent=fleet_pb2.AgentResource(
                agent_id=str(uuid.uuid4()),
                name=name,
                version=__version__,
                ttl_ms=600_000,
                policy=policy,
                tracker=tracker,
            )
        )
        self.channel = channels.open_channel(address)
        self._watch: Any = None

    async def connect(self) -> None:
        """Connect, and be healthy."""
        async with _CONNECTING:
            await self.channel.channel_ready()
            self._watch = health_pb2_grpc.HealthStub(self.channel).Watch(health_pb2.HealthCheckRequest())
            assert (await self._watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            await self._send_heartbeat(self.channel)

    async def _send_heartbeat(self, channel: grpc.aio.Channel, *, wait_for_ready: bool = False) -> str:
        """Send a heartbeat as agents do; return the name of the auth that answered."""
        stub = fleet_pb2_grpc.HeartbeatServiceStub(channel)
        response: fleet_pb2.HeartbeatResponse = await stub.Heartbeat(
            self._heartbeat, timeout=_TIMEOUT, wait_for_ready=wait_for_ready
        )
        return response.auth_id

    async def move(self, sick: str) -> None:
        """Move to another auth; the balancer may choose the unhealthy auth again."""
        while (await self._watch.read()).status == health_pb2.HealthCheckResponse.SERVING:
            pass
        old, wait = self.channel, random.random() * (DEFAULTS.first_wait or 0)
        while True:
            await asyncio.sleep(wait)
            wait = 0.0
            self.channel = channels.open_channel(self._address)
            if await self._send_heartbeat(self.channel, wait_for_ready=True) != sick:
                await old.close()
                return
            await self.channel.close()


class FloorClient(BareClient):
    """Bare, with the RPCs of ours and in the order of ours."""

    async def move(self, sick: str) -> None:
        """Move to another auth, after its service config and health."""
        while (await self._watch.read()).status == health_pb2.HealthCheckResponse.SERVING:
            pass
        wait = random.random() * (DEFAULTS.first_wait or 0)
        while True:
            await asyncio.sleep(wait)
            wait = 0.0
            async with _MOVING:
                self._old_connection = self.channel, self._watch
                channel = channels.open_channel(self._address, extra_options=channels.fixed_window_options())
                has_moved = await self._ask_all(channel, sick)
            if has_moved:
                self.channel = channel
                return
            await channel.close()

    async def _ask_all(self, channel: grpc.aio.Channel, sick: str) -> bool:
        config: Any = channel.unary_unary(GET_CONFIG_METHOD)(b"", wait_for_ready=True, timeout=_TIMEOUT)
        watch: Any = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(), wait_for_ready=True
        )
        healthy = (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        await config
        if not healthy:
            return False
        has_moved = await self._send_heartbeat(channel) != sick
        self._watch = watch
        return has_moved


async def run(address: str, count: int, kind: str, prefix: str) -> None:
    """Connect all, then follow commands until stdin ends."""
    client_type = BareClient if kind == "bare" else FloorClient
    clients = [client_type(address, f"{prefix}-{number}") for number in range(count)]
    await asyncio.gather(*(client.connect() for client in clients))
    print(json.dumps({"ready": count}), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while sick := (await reader.readline()).decode().strip():
        moves = [asyncio.create_task(asyncio.wait_for(client.move(sick), _TIMEOUT)) for client in clients]
        print(json.dumps({"waiting": count}), flush=True)
        await asyncio.gather(*moves, return_exceptions=True)
    await asyncio.gather(*(client.channel.close() for client in clients))


if __name__ == "__main__":
    lifecycle.raise_file_limit()
    garbage.collect_less()  # as agents' processes do
    uvloop.run(run(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))
