"""Fake agents: the messages that a proxy gets from an agent, sent by the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.nodes.proxy.server import Proxy
from fleet.protocol.tunnel import agent_services
from fleet.transport.tunnel.client import RegisterEndedError, TunnelClient
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes.plane import channel_to
from tests.fakes.waiting import DEADLINE


class FakeAgent:
    """An agent reduced to its two streams."""

    def __init__(
        self, proxy: Proxy, name: str, *, channel: grpc.aio.Channel | None = None, generation: int = 0
    ) -> None:
        self.name = name
        self.channel = channel or channel_to(proxy.instance.grpc_address)
        self._call: Any = fleet_pb2_grpc.TunnelControlStub(self.channel).Control()
        self.generation = generation or time.time_ns()
        self.register = TunnelClient(self.channel, name=name, generation=self.generation)
        self._register_task: asyncio.Task[None] | None = None

    async def hello(self) -> str:
        """Say hello, and return the id of the proxy that answers."""
        hello = fleet_pb2.AgentHello(agent_id=self.name, name=self.name, version="1")
        await self.send(hello=hello)
        return str((await self.read()).hello.proxy_id)

    async def join(self) -> None:
        """Register, so that the tunnel counts."""
        self._register_task = asyncio.create_task(self.register.run())
        await asyncio.sleep(0)
        await self.claim()

    async def claim(self) -> None:
        """Add the target that makes the tunnel count."""
        await self.register.add_target(agent_services.target_of(agent_services.STATUS_SERVICE, self.name))

    async def await_register_end(self) -> str:
        """Wait for the end of the Register stream; return the reason."""
        assert self._register_task is not None
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(RegisterEndedError) as error:
                await self._register_task
        return str(error.value)

    async def send(self, **frame: Any) -> None:
        """Write a frame."""
        await self._call.write(fleet_pb2.AgentFrame(**frame))

    async def read(self) -> Any:
        """The next frame."""
        async with asyncio.timeout(DEADLINE):
            return await self._call.read()

    async def read_discovery(self) -> list[dict[str, Any]]:
        """The next discovery request, over whatever else comes."""
        while True:
            frame = await self.read()
            if frame.HasField("discovery"):
                proxies: list[dict[str, Any]] = json.loads(frame.discovery.request)["proxies"]
                return proxies

    async def code(self) -> grpc.StatusCode:
        """Return the status of the call, after reading everything, as gRPC requires."""
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await self._call.read() is not grpc.aio.EOF:
                    pass
            code: grpc.StatusCode = await self._call.code()
            return code

    def end_control(self) -> None:
        """End the Control stream alone."""
        self._call.cancel()

    async def close(self) -> None:
        """End everything."""
        self._call.cancel()
        await self.register.close()
        if self._register_task is not None:
            await asyncio.wait([self._register_task])
            self._register_task.exception()
        await self.channel.close()


class Agents:
    """Makes them, and ends them all."""

    def __init__(self) -> None:
        self.fake_agents: list[FakeAgent] = []

    async def connect(self, proxy: Proxy, name: str) -> FakeAgent:
        """An agent with a tunnel that counts."""
        agent = FakeAgent(proxy, name)
        self.fake_agents.append(agent)
        assert await agent.hello() == proxy.instance.flags.id
        await agent.join()
        return agent

    async def close(self) -> None:
        """End all."""
        for agent in self.fake_agents:
            await agent.close()
