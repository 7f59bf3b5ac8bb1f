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


class LargeAnswers:
    """Those of one server that are not read yet."""

    def __init__(
        self, most_of_one: int = _MOST_OF_ONE, most: int = _MOST, read_within: float = _READ_WITHIN
    ) -> None:
        self._most_of_one = most_of_one
        self._most = most
        self._read_within = read_within
        self._waiting: Counter[Hashable] = Counter()

    async def admit(self, context: Context) -> None:
        """Count a call until it is over, and end it when its answer is not read in time.

        Refuse it when too many wait already: a caller by its certificate is held to its own share.
        """
        caller = _caller_of(context)
        if self._waiting[caller] >= self._most_of_one or self._waiting.total() >= self._most:
            why = "too many answers wait that nobody reads"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        task = asyncio.current_task()
        assert task is not None, "a call is served by a task"
        self._waiting[caller] += 1
        given_up = asyncio.get_running_loop().call_later(self._read_within, task.cancel)

        def over(_: object) -> None:
            given_up.cancel()
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller]

        # gRPC takes the call for served once it has sent the answer: when the other end has read enough of it.
        task.add_done_callback(over)


def _caller_of(context: Context) -> Hashable:
    caller = peers.caller_of(context)
    return host_of(context.peer()) if caller is None else caller
