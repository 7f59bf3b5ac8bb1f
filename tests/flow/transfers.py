"""What stands behind a tunnel in tests: a TCP service that checks every byte, with its user, and a web site."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import itertools
import random
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

_SIZE = struct.Struct("!Q")
_BLOCK = 1 << 20
_PATIENCE = 300.0


def _blocks(size: int, seed: int) -> Iterator[bytes]:
    """`size` bytes that only this seed makes, cheaply: one random block, each time begun elsewhere."""
    block = random.Random(seed).randbytes(_BLOCK)
    for turn in itertools.count():
        if size <= 0:
            return
        start = turn * 4099 % _BLOCK
        part = (block[start:] + block[:start])[: min(size, _BLOCK)]
        yield part
        size -= len(part)


def digest(size: int, seed: int) -> bytes:
    """Of those bytes."""
    checksum = hashlib.sha256()
    for part in _blocks(size, seed):
        checksum.update(part)
    return checksum.digest()


def _exactly(sock: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = sock.recv(size - len(content))
        if not part:
            raise ConnectionError(f"ended after {len(content)} of {size} bytes")
        content += part
    return bytes(content)


def _hashed(sock: socket.socket, size: int) -> bytes:
    checksum = hashlib.sha256()
    while size:
        part = sock.recv(min(size, _BLOCK))
        if not part:
            raise ConnectionError(f"ended with {size} bytes to come")
        checksum.update(part)
        size -= len(part)
    return checksum.digest()


class Service:
    """Takes a size and so many bytes, answers with their digest, and sends as many of its own."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        #: Connections that ended orderly, by the user's end of stream.
        self.closed_count = 0
        self.open = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with self._lock:
            self.open += 1
        try:
            with sock:
                sock.settimeout(_PATIENCE)
                while head := sock.recv(_SIZE.size, socket.MSG_WAITALL):
                    (size,) = _SIZE.unpack(head)
                    sock.sendall(_hashed(sock, size))
                    for part in _blocks(size, seed=2):
                        sock.sendall(part)
                with self._lock:
                    self.closed_count += 1
        except (OSError, struct.error):
            return
        finally:
            with self._lock:
                self.open -= 1

    def stop(self) -> None:
        """Listen no more."""
        self._listener.close()


@contextlib.contextmanager
def service(port: int = 0) -> Iterator[Service]:
    """Run one."""
    new_service = Service(port)
    try:
        yield new_service
    finally:
        new_service.stop()


def connect(address: str) -> socket.socket:
    """A connection to host:port."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=_PATIENCE)


def transfer(sock: socket.socket, size: int) -> None:
    """Send `size` bytes and take as many; what either end got must be what the other sent."""
    sock.sendall(_SIZE.pack(size))
    for part in _blocks(size, seed=1):
        sock.sendall(part)
    assert _exactly(sock, 32) == digest(size, seed=1), "the service got other bytes"
    assert _hashed(sock, size) == digest(size, seed=2), "we got other bytes"


class Site(http.server.BaseHTTPRequestHandler):
    """A small web site."""

    def do_GET(self) -> None:
        """Say which page was asked for."""
        body = f"page {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def site() -> Iterator[str]:
    """Run the web site; its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
