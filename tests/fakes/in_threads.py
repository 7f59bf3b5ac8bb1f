"""A blocking channel with grpc.aio's interface, as far as tests need it: tests of both kinds of channel share
their code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from fleet.transport.pick_healthy.blocking import BlockingPickHealthyChannel
from fleet.transport.pick_healthy.events import ChannelPolicy

_READY_SECONDS = 30.0


class InThreads:
    """Runs every blocking call in a thread."""

    def __init__(self, channel: BlockingPickHealthyChannel) -> None:
        self._channel = channel
        self._state = grpc.ChannelConnectivity.IDLE
        channel.subscribe(self._set_state)

    @property
    def policy(self) -> ChannelPolicy | None:
        """Return the policy that the channel uses."""
        return self._channel.policy

    @property
    def move_count(self) -> int:
        """Return how often the channel changed its connection."""
        return self._channel.move_count

    def get_state(self) -> grpc.ChannelConnectivity:
        """Return the state that subscribers got last."""
        return self._state

    async def channel_ready(self) -> None:
        """Wait for a healthy connection, as users of grpc do."""
        await asyncio.to_thread(grpc.channel_ready_future(self._channel).result, _READY_SECONDS)

    def unary_unary(self, method: str) -> Callable[..., Any]:
        """Return a function whose calls are awaited."""
        start_call: Any = self._channel.unary_unary(method)

        async def call(request: bytes, **kwargs: Any) -> bytes:
            response: bytes = await asyncio.to_thread(start_call, request, **kwargs)
            return response

        return call

    def unary_stream(self, method: str) -> Callable[..., _Stream]:
        """Return a function whose streams are read."""
        start_call: Any = self._channel.unary_stream(method)
        return lambda request: _Stream(start_call(request))

    async def close(self) -> None:
        await asyncio.to_thread(self._channel.close)

    def _set_state(self, state: grpc.ChannelConnectivity) -> None:
        self._state = state


class _Stream:
    def __init__(self, call: Any) -> None:
        self._call = call

    async def read(self) -> Any:
        return await asyncio.to_thread(next, self._call, grpc.aio.EOF)

    async def code(self) -> grpc.StatusCode:
        return await asyncio.to_thread(self._call.code)
