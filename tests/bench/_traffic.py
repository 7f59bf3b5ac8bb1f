"""The traffic of the tunnel's bench: a server, and a client that measures, each a process with blocking sockets.

    python -m tests.bench._traffic serve
    python -m tests.bench._traffic throughput --to HOST:PORT --connections 8 --mb 64 --direction out

The same for every variant, and light: 1 MiB per call keeps two of these far from being what is measured. A
connection begins with five bytes, what it is for and how many MB; the server's first byte says that it has begun, so
that setting up is not in a throughput.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.bench.measure import percentile

MB = 1_000_000
_BLOCK = 1 << 20
_HEAD = struct.Struct("!cI")
_START_BYTE = b"."
#: What a connection is for.
_SINK, _SOURCE, _ECHO, _DEAF = b"S", b"R", b"E", b"N"
_PING = 64
#: Nothing here waits longer, seconds: a variant that hangs must not hang the bench.
_WAIT_TIMEOUT = 60.0


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    received_bytes = bytearray()
    while len(received_bytes) < size:
        part = sock.recv(size - len(received_bytes))
        if not part:
            raise ConnectionError(f"ended after {len(received_bytes)} of {size} bytes")
        received_bytes += part
    return bytes(received_bytes)


def _receive(sock: socket.socket, size: int) -> None:
    buffer = bytearray(_BLOCK)
    remaining = size
    while remaining:
        size_read = sock.recv_into(buffer, min(remaining, _BLOCK))
        if not size_read:
            raise ConnectionError(f"ended with {remaining} of {size} bytes to come")
        remaining -= size_read


def _send(sock: socket.socket, size: int) -> None:
    block = memoryview(bytes(range(256)) * (_BLOCK // 256))
    while size:
        part = block[: min(size, _BLOCK)]
        sock.sendall(part)
        size -= len(part)


# -- the server ------------------------------------------------------------------------------------


def _serve_one(sock: socket.socket) -> None:
    with sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            purpose, megabytes = _HEAD.unpack(_receive_exactly(sock, _HEAD.size))
            sock.sendall(_START_BYTE)
            if purpose == _SINK:
                _receive(sock, megabytes * MB)
                sock.sendall(_START_BYTE)
            elif purpose == _SOURCE:
                _receive_exactly(sock, 1)
                _send(sock, megabytes * MB)
            elif purpose == _DEAF:
                threading.Event().wait()
            while part := sock.recv(65536):
                sock.sendall(part)
        except ConnectionError:
            return


def serve() -> None:
    """Serve on a free port, which is printed, until the process is ended."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(json.dumps({"event": "ready", "listen": f"127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=_serve_one, args=(sock,), daemon=True).start()


# -- the client ------------------------------------------------------------------------------------


def _open(to: str, purpose: bytes, megabytes: int = 0) -> socket.socket:
    """Open a connection and wait for the server's start byte."""
    host, _, port = to.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=_WAIT_TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(_HEAD.pack(purpose, megabytes))
    _receive_exactly(sock, 1)
    return sock


def _close(sock: socket.socket) -> None:
    """End our direction, and wait for the end of the other."""
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(65536):
        pass
    sock.close()


def throughput(to: str, connections: int, megabytes: int, direction: str) -> dict[str, float]:
    """Seconds for `megabytes` on each connection at once; `out` is towards the server, `in` from it."""
    purpose = _SINK if direction == "out" else _SOURCE
    socks = [_open(to, purpose, megabytes) for _ in range(connections)]

    def transfer(sock: socket.socket) -> None:
        if direction == "out":
            _send(sock, megabytes * MB)
            _receive_exactly(sock, 1)
        else:
            sock.sendall(_START_BYTE)
            _receive(sock, megabytes * MB)

    seconds = _run_at_once([lambda sock=sock: transfer(sock) for sock in socks])  # type: ignore[misc] # bound now
    for sock in socks:
        _close(sock)
    return {"seconds": seconds, "mb": float(connections * megabytes)}


def _run_at_once(works: list[Callable[[], None]]) -> float:
    """Start all functions at once and return the seconds until the last ends. Raises the first error."""
    errors: list[BaseException] = []
    gate = threading.Barrier(len(works) + 1)

    def run(work: Callable[[], None]) -> None:
        gate.wait()
        try:
            work()
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    gate.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    if errors:
        raise errors[0]
    return took


def round_trips(to: str, rounds: int) -> dict[str, float]:
    """Microseconds of 64 bytes there and back, one at a time, after some that warm up."""
    sock = _open(to, _ECHO)
    ping = bytes(_PING)
    micros = []
    for turn in range(rounds + rounds // 10):
        start = time.perf_counter()
        sock.sendall(ping)
        _receive_exactly(sock, _PING)
        if turn >= rounds // 10:
            micros.append((time.perf_counter() - start) * 1e6)
    _close(sock)
    return {"p50_us": percentile(micros, 0.5), "p99_us": percentile(micros, 0.99)}


def sessions(to: str, count: int, at_once: int) -> dict[str, float]:
    """Return how many connections per second are opened, used for 64 bytes and closed, and how long one open takes."""

    def run_session() -> float:
        start = time.perf_counter()
        sock = _open(to, _ECHO)
        open_seconds = time.perf_counter() - start
        sock.sendall(bytes(_PING))
        _receive_exactly(sock, _PING)
        _close(sock)
        return open_seconds * 1000

    alone = [run_session() for _ in range(max(count // 4, 1))]

    def many() -> None:
        for _ in range(count // at_once):
            run_session()

    seconds = _run_at_once([many] * at_once)
    return {
        "per_s": count // at_once * at_once / seconds,
        "open_p50_ms": percentile(alone, 0.5),
        "open_p99_ms": percentile(alone, 0.99),
    }


def idle(to: str, count: int) -> None:
    """Open `count` connections, print that they are ready, and keep them until standard input ends."""
    socks = [_open(to, _ECHO) for _ in range(count)]
    print(json.dumps({"event": "ready", "open": len(socks)}), flush=True)
    sys.stdin.read()


def deaf(to: str, quiet: float) -> None:
    """Send to a server that reads nothing, until it accepts no more for `quiet` seconds; print how much, and wait."""
    sock = _open(to, _DEAF)
    sock.settimeout(quiet)
    block = bytes(_BLOCK)
    sent_bytes = 0
    try:
        while sent_bytes < 2_000 * MB:
            sent_bytes += sock.send(block)
    except TimeoutError:
        print(json.dumps({"event": "ready", "sent_mb": sent_bytes / MB, "stalled": True}), flush=True)
    else:
        print(json.dumps({"event": "ready", "sent_mb": sent_bytes / MB, "stalled": False}), flush=True)
    sys.stdin.read()


def main(argv: list[str]) -> int:
    """Run one role or measurement (printed as one JSON object). Exit code 1 when the other end ended early."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench._traffic")
    parser.add_argument("what", choices=["serve", "throughput", "round_trips", "sessions", "idle", "deaf"])
    parser.add_argument("--to", default="")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--direction", choices=["out", "in"], default="out")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--quiet", type=float, default=1.0)
    options = parser.parse_args(argv)
    functions: dict[str, Callable[[], Any]] = {
        "serve": serve,
        "throughput": lambda: throughput(options.to, options.connections, options.mb, options.direction),
        "round_trips": lambda: round_trips(options.to, options.count),
        "sessions": lambda: sessions(options.to, options.count, options.connections),
        "idle": lambda: idle(options.to, options.count),
        "deaf": lambda: deaf(options.to, options.quiet),
    }
    try:
        figures = functions[options.what]()
    except OSError as error:
        print(f"{options.what} to {options.to}: {error}", file=sys.stderr)
        return 1
    if figures is not None:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
