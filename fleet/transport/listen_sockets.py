"""Listening sockets: have one, and end it without losing the connections that are accepted at that moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Protocol

_BACKLOG = 512


class HasFileDescriptor(Protocol):
    """A socket, or what an event loop shows of one."""

    def fileno(self) -> int:
        """Return the file descriptor."""


async def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens: who dials before a server takes it waits and is not refused. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listen_socket = socket.socket(family, socket.SOCK_STREAM)
    try:
        listen_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listen_socket.bind((host, port))
        listen_socket.listen(_BACKLOG)
    except OSError:
        listen_socket.close()
        raise
    return listen_socket


async def stop_accepting(sockets: Iterable[HasFileDescriptor]) -> None:
    """Accept nobody new, and return once the protocols of all who were accepted know of them.

    asyncio of Python 3.11 accepts a connection in one turn of the loop, and gives it to the server in the next. A
    server that is closed between the two loses it: no protocol ever hears of it, and its socket stays open until the
    garbage collector closes it (https://github.com/python/cpython/issues/109564).
    """
    loop = asyncio.get_running_loop()
    for listen_socket in sockets:
        loop.remove_reader(listen_socket.fileno())
    # One turn makes the transport, the next one tells the protocol.
    for _ in range(2):
        await asyncio.sleep(0)


async def stop_listening(server: asyncio.Server) -> None:
    """Close a server, which then knows of everybody whom it accepted."""
    await stop_accepting(server.sockets)
    server.close()
