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
_BEGUN = b"."
#: What a connection is for.
_SINK, _SOURCE, _ECHO, _DEAF = b"S", b"R", b"E", b"N"
_PING = 64
#: Nothing here waits longer, seconds: a variant that hangs must not hang the bench.
_PATIENCE = 60.0


def _exactly(sock: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        part = sock.recv(size - len(got))
        if not part:
            raise ConnectionError(f"ended after {len(got)} of {size} bytes")
        got += part
    return bytes(got)


def _receive(sock: socket.socket, size: int) -> None:
    buffer = bytearray(_BLOCK)
    left = size
    while left:
        got = sock.recv_into(buffer, min(left, _BLOCK))
        if not got:
            raise ConnectionError(f"ended with {left} of {size} bytes to come")
        left -= got


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
            purpose, megabytes = _HEAD.unpack(_exactly(sock, _HEAD.size))
            sock.sendall(_BEGUN)
            if purpose == _SINK:
                _receive(sock, megabytes * MB)
                sock.sendall(_BEGUN)
            elif purpose == _SOURCE:
                _exactly(sock, 1)
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
    """A connection whose server has begun."""
    host, _, port = to.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=_PATIENCE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(_HEAD.pack(purpose, megabytes))
    _exactly(sock, 1)
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

    def one(sock: socket.socket) -> None:
        if direction == "out":
            _send(sock, megabytes * MB)
            _exactly(sock, 1)
        else:
            sock.sendall(_BEGUN)
            _receive(sock, megabytes * MB)

    seconds = _at_once([lambda sock=sock: one(sock) for sock in socks])  # type: ignore[misc] # bound now
    for sock in socks:
        _close(sock)
    return {"seconds": seconds, "mb": float(connections * megabytes)}


def _at_once(works: list[Callable[[], None]]) -> float:
    """Seconds until all are done, begun together. Raises what the first to fail raised."""
    failed: list[BaseException] = []
    gate = threading.Barrier(len(works) + 1)

    def run(work: Callable[[], None]) -> None:
        gate.wait()
        try:
            work()
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if failed:
        raise failed[0]
    return took


def round_trips(to: str, rounds: int) -> dict[str, float]:
    """Microseconds of 64 bytes there and back, one at a time, after some that warm up."""
    sock = _open(to, _ECHO)
    ping = bytes(_PING)
    taken = []
    for turn in range(rounds + rounds // 10):
        began = time.perf_counter()
        sock.sendall(ping)
        _exactly(sock, _PING)
        if turn >= rounds // 10:
            taken.append((time.perf_counter() - began) * 1e6)
    _close(sock)
    return {"p50_us": percentile(taken, 0.5), "p99_us": percentile(taken, 0.99)}


def sessions(to: str, count: int, at_once: int) -> dict[str, float]:
    """How many connections a second are opened, used for 64 bytes and closed, and how long opening one takes alone."""

    def one() -> float:
        began = time.perf_counter()
        sock = _open(to, _ECHO)
        opened = time.perf_counter() - began
        sock.sendall(bytes(_PING))
        _exactly(sock, _PING)
        _close(sock)
        return opened * 1000

    alone = [one() for _ in range(max(count // 4, 1))]

    def many() -> None:
        for _ in range(count // at_once):
            one()

    seconds = _at_once([many] * at_once)
    return {
        "per_s": count // at_once * at_once / seconds,
        "open_p50_ms": percentile(alone, 0.5),
        "open_p99_ms": percentile(alone, 0.99),
    }


def idle(to: str, count: int) -> None:
    """Hold `count` connections open, all begun; say so, and keep them until standard input ends."""
    socks = [_open(to, _ECHO) for _ in range(count)]
    print(json.dumps({"event": "ready", "open": len(socks)}), flush=True)
    sys.stdin.read()


def deaf(to: str, quiet: float) -> None:
    """Send to a server that reads nothing, until nothing went out for `quiet` seconds; say how much did, and wait."""
    sock = _open(to, _DEAF)
    sock.settimeout(quiet)
    block = bytes(_BLOCK)
    sent = 0
    try:
        while sent < 2_000 * MB:
            sent += sock.send(block)
    except TimeoutError:
        print(json.dumps({"event": "ready", "sent_mb": sent / MB, "stalled": True}), flush=True)
    else:
        print(json.dumps({"event": "ready", "sent_mb": sent / MB, "stalled": False}), flush=True)
    sys.stdin.read()


def main(argv: list[str]) -> int:
    """Do one thing; measurements are printed as one JSON object. Exit code 1 when the other end ended early."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench._traffic")
    parser.add_argument("what", choices=["serve", "throughput", "round_trips", "sessions", "idle", "deaf"])
    parser.add_argument("--to", default="")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--direction", choices=["out", "in"], default="out")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--quiet", type=float, default=1.0)
    asked = parser.parse_args(argv)
    measured: dict[str, Callable[[], Any]] = {
        "serve": serve,
        "throughput": lambda: throughput(asked.to, asked.connections, asked.mb, asked.direction),
        "round_trips": lambda: round_trips(asked.to, asked.count),
        "sessions": lambda: sessions(asked.to, asked.count, asked.connections),
        "idle": lambda: idle(asked.to, asked.count),
        "deaf": lambda: deaf(asked.to, asked.quiet),
    }
    try:
        result = measured[asked.what]()
    except OSError as error:
        print(f"{asked.what} to {asked.to}: {error}", file=sys.stderr)
        return 1
    if result is not None:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
