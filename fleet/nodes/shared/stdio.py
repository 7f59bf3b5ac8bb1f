"""Standard input and output as one end of a pump: what `ssh -o ProxyCommand` gives to a program.

Files, pipes and terminals are read and written by threads, because an event loop cannot wait for all of them; between
them and the loop is a socket pair, so that to the pump it is a TCP connection like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading

from fleet.transport.tunnel.pump import TcpConnection

_BLOCK = 256 * 1024


class Stdio:
    """The two threads, and the pump's end."""

    def __init__(self, connection: TcpConnection, writer: threading.Thread) -> None:
        self.connection = connection
        self._writer = writer

    async def wait_until_written(self) -> None:
        """Wait until everything that came from the pump stands on standard output."""
        await asyncio.to_thread(self._writer.join)


async def open_stdio(source: int = 0, sink: int = 1) -> Stdio:
    """Begin to carry. The descriptors are read and written until their ends, and never closed."""
    loop_socket, thread_socket = socket.socketpair()
    writer = threading.Thread(target=_write, args=(thread_socket, sink), daemon=True)
    # A daemon, because nothing can wake it from a terminal on which nobody types.
    threading.Thread(target=_read, args=(source, thread_socket.dup()), daemon=True).start()
    writer.start()
    loop_socket.setblocking(False)
    _, connection = await asyncio.get_running_loop().create_connection(TcpConnection, sock=loop_socket)
    return Stdio(connection, writer)


def _read(source: int, sock: socket.socket) -> None:
    with sock, contextlib.suppress(OSError):
        while part := os.read(source, _BLOCK):
            sock.sendall(part)
        sock.shutdown(socket.SHUT_WR)


def _write(sock: socket.socket, sink: int) -> None:
    with sock:
        try:
            while part := sock.recv(_BLOCK):
                view = memoryview(part)
                while view:
                    view = view[os.write(sink, view) :]
        except OSError:
            # Whoever read us is gone: the pump's end must know, though the reader's thread still holds the socket. Both
            # directions, because ending one does not wake who waits for room in a full buffer.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
