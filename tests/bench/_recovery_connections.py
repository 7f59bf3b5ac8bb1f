"""Users with long-lived TCP connections through the fleet, each counting and summing every byte both ways."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

#: What a user sends at once, and how often it does, seconds.
_PIECE = 4096
_PAUSE = 0.2
#: For a proxy to answer a CONNECT, and for the last bytes to come back, seconds.
_WITHIN = 15.0
_LAST_WITHIN = 60.0


@dataclass(slots=True)
class User:
    """One connection."""

    agent: str
    proxy: str
    sent_bytes: int = 0
    received_bytes: int = 0
    sum_sent: int = 0
    sum_received: int = 0
    #: Why the connection ended early; empty when it did not.
    failure: str = ""
    end_event: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_complete(self) -> bool:
        """Return whether everything that was sent came back."""
        return not self.failure and (self.sent_bytes, self.sum_sent) == (
            self.received_bytes,
            self.sum_received,
        )

    @property
    def missing_bytes(self) -> int:
        """Return the number of bytes that did not come back."""
        return self.sent_bytes - self.received_bytes


class Users:
    """All users of the benchmark, in one event loop."""

    def __init__(self, service: str) -> None:
        self.all: list[User] = []
        self._service = service
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self, agent: str, proxies: Sequence[tuple[str, str]]) -> User:
        """Connect a user to an agent's service, through the first proxy (name, CONNECT address) with a tunnel.

        Raises ConnectionError with the last proxy's response.
        """
        reason = "there is no proxy"
        for name, address in proxies:
            host, _, port = address.rpartition(":")
            try:
                reader, writer = await asyncio.open_connection(host, int(port))
            except OSError as error:
                reason = str(error)
                continue
            target = f"{self._service}.{agent}"
            writer.write(f"CONNECT {target}:1 HTTP/1.1\r\nHost: {target}:1\r\n\r\n".encode())
            async with asyncio.timeout(_WITHIN):
                head = await reader.readuntil(b"\r\n\r\n")
            reason = head.partition(b"\r\n")[0].decode()
            if " 200" in reason:
                user = User(agent, name)
                self.all.append(user)
                self._tasks.append(asyncio.create_task(self._use(user, reader, writer)))
                return user
            writer.close()
        raise ConnectionError(f"{agent}: {reason}")

    async def finish(self) -> None:
        """End every user's connection: half-close it, read to the end, close it."""
        for user in self.all:
            user.end_event.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.result()

    async def _use(self, user: User, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chance = random.Random(f"{user.agent} {user.proxy} {time.monotonic_ns()}")
        read_task = asyncio.create_task(self._read(user, reader))
        try:
            while not user.end_event.is_set() and not read_task.done():
                piece = chance.randbytes(_PIECE)
                user.sent_bytes += len(piece)
                user.sum_sent = zlib.crc32(piece, user.sum_sent)
                writer.write(piece)
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(user.end_event.wait(), _PAUSE * chance.uniform(0.5, 1.5))
            if not read_task.done():
                writer.write_eof()
            async with asyncio.timeout(_LAST_WITHIN):
                await read_task
            if not user.end_event.is_set() and not user.failure:
                user.failure = "the connection ended before its user closed it"
        except (OSError, TimeoutError) as error:
            user.failure = user.failure or str(error) or type(error).__name__
        finally:
            read_task.cancel()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _read(self, user: User, reader: asyncio.StreamReader) -> None:
        try:
            while piece := await reader.read(65536):
                user.received_bytes += len(piece)
                user.sum_received = zlib.crc32(piece, user.sum_received)
        except OSError as error:
            user.failure = str(error)
