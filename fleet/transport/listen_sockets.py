"""Listening sockets: opening, and closing without losing connections that are being accepted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Protocol

_BACKLOG = 512


class HasFileDescriptor(Protocol):
    """A socket, or an event loop's wrapper of one."""

    def fileno(self) -> int:
        """Return the file descriptor."""


async def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket: clients that dial before a server uses it wait. Raises OSError."""
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
    """Stop accepting; return once the protocols of all accepted connections know of them, and their tasks have begun.

    asyncio of Python 3.11 accepts a connection in one turn of the loop, and gives it to the server in the next. A
    server that is closed in between loses it: no protocol gets the connection, and its socket stays open until it is
    garbage-collected (https://github.com/python/cpython/issues/109564). A task that its protocol starts would have the
    same effect: if it is cancelled before it begins, nothing of it runs, so it cannot close the connection.
    """
    loop = asyncio.get_running_loop()
    for listen_socket in sockets:
        loop.remove_reader(listen_socket.fileno())
    # The first turn makes the transport, the second one calls the protocol, and the third one begins its task.
    for _ in range(3):
        await asyncio.sleep(0)


async def stop_listening(server: asyncio.Server) -> None:
    """Close a server without losing accepted connections."""
    await stop_accepting(server.sockets)
    server.close()
