"""Standard input and output as one end of a pump, as `ssh -o ProxyCommand` gives them to a program.

Threads read and write them, because an event loop cannot wait for files, pipes and terminals alike. A socket pair
connects the threads with the loop, so the pump sees an ordinary TCP connection.
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
    """The writer thread and the pump's end."""

    def __init__(self, connection: TcpConnection, writer: threading.Thread) -> None:
        self.connection = connection
        self._writer = writer

    async def wait_until_written(self) -> None:
        """Wait until everything from the pump is on standard output."""
        await asyncio.to_thread(self._writer.join)


async def open_stdio(source: int = 0, sink: int = 1) -> Stdio:
    """Start copying. The file descriptors are read and written until they end, and never closed."""
    loop_socket, thread_socket = socket.socketpair()
    writer = threading.Thread(target=_write, args=(thread_socket, sink), daemon=True)
    # A daemon thread, because nothing can wake it from a terminal on which nobody types.
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
            # The reader of our output is gone. The pump's end must see that although the reader thread still holds the
            # socket. Both directions are shut down, because ending one does not wake a writer that waits for room in a
            # full buffer.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
