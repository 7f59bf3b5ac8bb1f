"""Users of agents during a soak: long-lived connections that check every byte, and short ones that test the way."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.fakes.tcp import serve_echo

#: The service that every agent exposes.
SERVICE = "echo"
#: Seconds between two messages of a long-lived connection.
_PAUSE = 0.5
#: Seconds for a proxy to answer a CONNECT, and for the first byte to come back.
DIAL_TIMEOUT = 4.0


@dataclass(slots=True)
class Connection:
    """A long-lived connection to the service of an agent."""

    agent: str
    #: Processes that its bytes cross.
    path: tuple[str, ...]
    echo_count: int = 0
    #: When the newest message came back, monotonic seconds.
    echoed_at: float = 0.0
    #: Why and when it ended; empty and 0 while it lives.
    failure: str = ""
    ended_at: float = 0.0


class Users:
    """An echo service and the connections to it, in a thread with an event loop of its own."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._stop_event = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_serving = threading.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._serve(),), daemon=True
        )

    def start(self) -> None:
        """Start the service, at `port`."""
        self._thread.start()
        assert self._is_serving.wait(30.0)

    def stop(self) -> None:
        """End all connections and the service."""
        self._loop.call_soon_threadsafe(self._stop_event.set)
        self._thread.join()
        self._loop.close()

    def connect(self, agent: str, address: str, path: tuple[str, ...]) -> Connection:
        """Open a long-lived connection through the CONNECT port at this address. Raises ConnectionError."""
        connection = Connection(agent, path)
        self._run(self._open(connection, address))
        self.connections.append(connection)
        return connection

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60.0)

    async def _serve(self) -> None:
        async with serve_echo() as self.port:
            self._is_serving.set()
            await self._stop_event.wait()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self, connection: Connection, address: str) -> None:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(_request(connection.agent))
        try:
            async with asyncio.timeout(DIAL_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            writer.close()
            raise ConnectionError(f"{connection.agent}: {error!r}") from error
        if b" 200 " not in head.partition(b"\r\n")[0]:
            writer.close()
            raise ConnectionError(f"{connection.agent}: {head!r}")
        task = asyncio.create_task(_use(connection, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _use(connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send numbered messages, one after the other, and compare what comes back."""
    try:
        for number in itertools.count():
            message = f"{number:032}".encode()
            writer.write(message)
            await writer.drain()
            echo = await reader.readexactly(len(message))
            if echo != message:
                raise ConnectionError(f"{echo!r} came back instead of {message!r}")
            connection.echo_count += 1
            connection.echoed_at = time.monotonic()
            await asyncio.sleep(_PAUSE)
    except (OSError, asyncio.IncompleteReadError) as error:
        connection.failure, connection.ended_at = str(error) or type(error).__name__, time.monotonic()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def is_reachable(agent: str, addresses: Sequence[str]) -> bool:
    """Return whether a user reaches the service of an agent through any of these CONNECT ports."""
    if not addresses:
        return False
    first, *other_addresses = addresses
    if _dial(agent, first):
        return True
    if not other_addresses:
        return False
    with ThreadPoolExecutor(len(other_addresses)) as executor:
        return any(executor.map(lambda address: _dial(agent, address), other_addresses))


def _dial(agent: str, address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=DIAL_TIMEOUT) as sock:
            sock.sendall(_request(agent))
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                part = sock.recv(1)
                if not part:
                    return False
                head += part
            if b" 200 " not in head.partition(b"\r\n")[0]:
                return False
            sock.sendall(b"?")
            return sock.recv(1) == b"?"
    except OSError:
        return False


def _request(agent: str) -> bytes:
    return f"CONNECT {SERVICE}.{agent}:1 HTTP/1.1\r\nHost: {SERVICE}.{agent}:1\r\n\r\n".encode()
