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
    sent: int = 0
    received: int = 0
    sum_sent: int = 0
    sum_received: int = 0
    #: Why it ended before it was told to; empty when it did not.
    broke: str = ""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def whole(self) -> bool:
        """Everything that was sent came back."""
        return not self.broke and (self.sent, self.sum_sent) == (self.received, self.sum_received)

    @property
    def lost(self) -> int:
        """Bytes that did not come back."""
        return self.sent - self.received


class Users:
    """All of them, in one event loop."""

    def __init__(self, service: str) -> None:
        self.all: list[User] = []
        self._service = service
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self, agent: str, proxies: Sequence[tuple[str, str]]) -> User:
        """A user of an agent's service, through the first of the proxies (name, CONNECT address) that has a tunnel.

        Raises ConnectionError with what the last proxy said.
        """
        said = "there is no proxy"
        for name, address in proxies:
            host, _, port = address.rpartition(":")
            try:
                reader, writer = await asyncio.open_connection(host, int(port))
            except OSError as error:
                said = str(error)
                continue
            target = f"{self._service}.{agent}"
            writer.write(f"CONNECT {target}:1 HTTP/1.1\r\nHost: {target}:1\r\n\r\n".encode())
            async with asyncio.timeout(_WITHIN):
                head = await reader.readuntil(b"\r\n\r\n")
            said = head.partition(b"\r\n")[0].decode()
            if " 200" in said:
                user = User(agent, name)
                self.all.append(user)
                self._tasks.append(asyncio.create_task(self._use(user, reader, writer)))
                return user
            writer.close()
        raise ConnectionError(f"{agent}: {said}")

    async def finish(self) -> None:
        """Let every user end as users do: say so, read to the end, and go."""
        for user in self.all:
            user.done.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.result()

    async def _use(self, user: User, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chance = random.Random(f"{user.agent} {user.proxy} {time.monotonic_ns()}")
        reading = asyncio.create_task(self._read(user, reader))
        try:
            while not user.done.is_set() and not reading.done():
                piece = chance.randbytes(_PIECE)
                user.sent += len(piece)
                user.sum_sent = zlib.crc32(piece, user.sum_sent)
                writer.write(piece)
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(user.done.wait(), _PAUSE * chance.uniform(0.5, 1.5))
            if not reading.done():
                writer.write_eof()
            async with asyncio.timeout(_LAST_WITHIN):
                await reading
            if not user.done.is_set() and not user.broke:
                user.broke = "it was ended before its user ended it"
        except (OSError, TimeoutError) as error:
            user.broke = user.broke or str(error) or type(error).__name__
        finally:
            reading.cancel()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _read(self, user: User, reader: asyncio.StreamReader) -> None:
        try:
            while piece := await reader.read(65536):
                user.received += len(piece)
                user.sum_received = zlib.crc32(piece, user.sum_received)
        except OSError as error:
            user.broke = str(error)
