"""Limits of large responses: how many may wait for their readers, and for how long. docs/reference/nodes.md.

A request of a few bytes can return megabytes, and a response that nobody reads stays in memory while its RPC is open.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable
from typing import Any

import grpc
import grpc.aio

from fleet.nodes.shared.refusals import host_of
from fleet.transport import peers

Context = grpc.aio.ServicerContext[Any, Any]

#: Most unread responses of one caller, and of all callers.
_MAX_UNREAD_PER_CALLER, _MAX_UNREAD = 8, 64
#: Seconds within which a response must be read. On a slow line, 2 MiB take 17 s at 1 Mbit/s.
_READ_WITHIN = 30.0


class ResponseLimiter:
    """The unread large responses of one server."""

    def __init__(
        self,
        limit_per_caller: int = _MAX_UNREAD_PER_CALLER,
        limit: int = _MAX_UNREAD,
        read_within: float = _READ_WITHIN,
    ) -> None:
        self._limit_per_caller = limit_per_caller
        self._limit = limit
        self._read_within = read_within
        self._unread_counts: Counter[Hashable] = Counter()

    async def admit(self, context: Context) -> None:
        """Count an RPC until it ends, and cancel it if its response is not read in time.

        Refuse it if too many responses are unread. The limit per caller is by certificate, or else by host.
        """
        caller = _caller_of(context)
        if (
            self._unread_counts[caller] >= self._limit_per_caller
            or self._unread_counts.total() >= self._limit
        ):
            details = "too many responses are waiting to be read; read them, then try again"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, details)
        task = asyncio.current_task()
        assert task is not None, "an RPC is served by a task"
        self._unread_counts[caller] += 1
        timer = asyncio.get_running_loop().call_later(self._read_within, task.cancel)

        def on_done(_: object) -> None:
            timer.cancel()
            self._unread_counts[caller] -= 1
            if not self._unread_counts[caller]:
                del self._unread_counts[caller]

        # gRPC counts an RPC as served once the response is sent, which is when the client has read enough of it.
        task.add_done_callback(on_done)


def _caller_of(context: Context) -> Hashable:
    caller = peers.caller_of(context)
    return host_of(context.peer()) if caller is None else caller
