"""A blocking channel as grpc.aio's look, as far as tests want it: what is true of both kinds is tested once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from fleet.transport.pick_healthy.blocking import BlockingPickHealthyChannel
from fleet.transport.pick_healthy.events import ChannelPolicy

_READY_WITHIN = 30.0


class InThreads:
    """Every call that waits does so in a thread."""

    def __init__(self, channel: BlockingPickHealthyChannel) -> None:
        self._channel = channel
        self._state = grpc.ChannelConnectivity.IDLE
        channel.subscribe(self._heard)

    @property
    def policy(self) -> ChannelPolicy | None:
        """What it runs with."""
        return self._channel.policy

    @property
    def moves(self) -> int:
        """How often it moved."""
        return self._channel.moves

    def get_state(self) -> grpc.ChannelConnectivity:
        """What subscribers heard last."""
        return self._state

    async def channel_ready(self) -> None:
        """Wait for a healthy connection, as users of grpc do."""
        await asyncio.to_thread(grpc.channel_ready_future(self._channel).result, _READY_WITHIN)

    def unary_unary(self, method: str) -> Callable[..., Any]:
        """Calls that are awaited."""
        ask: Any = self._channel.unary_unary(method)

        async def call(request: bytes, **kwargs: Any) -> bytes:
            answer: bytes = await asyncio.to_thread(ask, request, **kwargs)
            return answer

        return call

    def unary_stream(self, method: str) -> Callable[..., _Stream]:
        """Streams that are read."""
        ask: Any = self._channel.unary_stream(method)
        return lambda request: _Stream(ask(request))

    async def close(self) -> None:
        """Close it."""
        await asyncio.to_thread(self._channel.close)

    def _heard(self, state: grpc.ChannelConnectivity) -> None:
        self._state = state


class _Stream:
    def __init__(self, call: Any) -> None:
        self._call = call

    async def read(self) -> Any:
        return await asyncio.to_thread(next, self._call, grpc.aio.EOF)

    async def code(self) -> grpc.StatusCode:
        return await asyncio.to_thread(self._call.code)
