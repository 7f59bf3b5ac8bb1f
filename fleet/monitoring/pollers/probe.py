"""Self-test of a poller: a listener in the polling event loop, probed with the same deadline.

When it does not respond in time, or the event loop lags, failures to reach instances are not evidence.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

_TOKEN = b"refloat\n"
#: Seconds between two measurements of the event loop's lag.
_TICK_SECONDS = 0.02


class SelfProbe:
    """Self-test during the polls of a shard: `async with SelfProbe(deadline) as probe: ...`, then `probe.succeeded`."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._tasks: list[asyncio.Task[bool]] = []
        self.succeeded = False

    async def __aenter__(self) -> SelfProbe:
        """Start the self-test."""
        self._tasks = [asyncio.create_task(self._probe_echo()), asyncio.create_task(self._watch_loop_lag())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the self-test and set `succeeded`."""
        echo_task, lag_task = self._tasks
        lag_task.cancel()
        self.succeeded = all(await asyncio.gather(echo_task, lag_task))

    async def _probe_echo(self) -> bool:
        try:
            async with asyncio.timeout(self._deadline):
                server = await asyncio.start_server(_echo, "127.0.0.1", 0)
                async with server:
                    host, port = server.sockets[0].getsockname()
                    reader, writer = await asyncio.open_connection(host, port)
                    writer.write(_TOKEN)
                    response = await reader.readline()
                    writer.close()
                    await writer.wait_closed()
        except OSError:  # a timeout is one, too
            return False
        return response == _TOKEN

    async def _watch_loop_lag(self) -> bool:
        """Return False when the event loop lags by half the deadline; runs until then or until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TICK_SECONDS
            try:
                await asyncio.sleep(_TICK_SECONDS)
            except asyncio.CancelledError:
                return loop.time() - due <= self._deadline / 2
            if loop.time() - due > self._deadline / 2:
                return False


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()
