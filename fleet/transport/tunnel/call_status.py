"""The status with which a call ended, even if a write failed afterwards.

If the server ends a call while the client writes, grpc.aio replaces the server's status by INTERNAL "Internal error
from Core" (grpc/grpc#36066), and with it the reason that a person needs. The callbacks of the call run before that.
"""

from __future__ import annotations

import grpc
import grpc.aio


class CallStatus:
    """The first status of a client's call: the server's, if the server sent one."""

    def __init__(self, call: grpc.aio.Call) -> None:
        """Watch `call`, which must not have ended."""
        self._call = call
        self._first: tuple[grpc.StatusCode, str | None] | None = None
        call.add_done_callback(self._on_done)

    def describe(self, error: grpc.aio.AioRpcError) -> str:
        """Return why the call ended, as text. `error` is what an operation on it raised."""
        code, details = self._first or (error.code(), error.details())
        return details or code.name

    def _on_done(self, _: object) -> None:
        if self._first is not None:
            return
        # A callback cannot await, and a task would run after the status is replaced. The call has ended, so this
        # coroutine has nothing to wait for.
        coroutine = self._read()
        try:
            coroutine.send(None)
        except StopIteration as end:
            self._first = end.value
        finally:
            coroutine.close()

    async def _read(self) -> tuple[grpc.StatusCode, str | None]:
        return await self._call.code(), await self._call.details()
