"""Large answers: how many may wait for their readers, and how long each. docs/nodes.md.

A question of a few bytes is answered with megabytes of a list, and an answer that nobody reads stays in memory for as
long as its call is open.
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

#: Of one caller, and of all.
_MOST_OF_ONE, _MOST = 8, 64
#: An answer must be read within this, seconds. Over a slow line 2 MiB take as long as 17 s at 1 Mbit/s.
_READ_WITHIN = 30.0


class ResponseLimiter:
    """Those of one server that are not read yet."""

    def __init__(
        self, limit_per_caller: int = _MOST_OF_ONE, limit: int = _MOST, read_within: float = _READ_WITHIN
    ) -> None:
        self._limit_per_caller = limit_per_caller
        self._limit = limit
        self._read_within = read_within
        self._unread_counts: Counter[Hashable] = Counter()

    async def admit(self, context: Context) -> None:
        """Count a call until it is over, and end it when its answer is not read in time.

        Refuse it when too many wait already: a caller by its certificate is held to its own share.
        """
        caller = _caller_of(context)
        if self._unread_counts[caller] >= self._limit_per_caller or self._unread_counts.total() >= self._limit:
            details = "too many answers wait that nobody reads"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, details)
        task = asyncio.current_task()
        assert task is not None, "a call is served by a task"
        self._unread_counts[caller] += 1
        timeout = asyncio.get_running_loop().call_later(self._read_within, task.cancel)

        def on_done(_: object) -> None:
            timeout.cancel()
            self._unread_counts[caller] -= 1
            if not self._unread_counts[caller]:
                del self._unread_counts[caller]

        # gRPC takes the call for served once it has sent the answer: when the other end has read enough of it.
        task.add_done_callback(on_done)


def _caller_of(context: Context) -> Hashable:
    caller = peers.caller_of(context)
    return host_of(context.peer()) if caller is None else caller
