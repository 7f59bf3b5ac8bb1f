"""A local fleet for flow tests: real processes of `refloat fleet up`, with the CONNECT ports of its proxies."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet.processes import children
from tests.fakes.openssh import Sshd
from tests.fakes.waiting import eventually_sync
from tests.flow.transfers import Service
from tests.meta.house import ROOT

PATIENCE = 120.0


@dataclass
class Fleet:
    """A fleet that runs, and what its agents expose."""

    home: Path
    #: The CONNECT ports of its proxies.
    connects: Sequence[str]
    auth: str
    #: gRPC addresses.
    proxies: Sequence[str]
    process: subprocess.Popen[bytes]
    checked: Service = field(init=False)
    sshd: Sshd | None = None

    @property
    def connect(self) -> str:
        """The CONNECT port of the first proxy."""
        return self.connects[0]

    def refloat(self, *words: str) -> list[str]:
        """A command line of ours."""
        return [sys.executable, "-m", "fleet.cli", *words, "--home", str(self.home)]

    def run(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run one of our commands to its end."""
        argv = self.refloat(*words)
        return subprocess.run(argv, input=given, capture_output=True, cwd=ROOT, timeout=PATIENCE, check=False)

    def ask(self, target: str, connect: str = "") -> tuple[socket.socket, str]:
        """A connection to a CONNECT port, by default the first one, that asked for a target, and the status line."""
        host, _, port = (connect or self.connect).rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout=PATIENCE)
        sock.sendall(f"CONNECT {target}:1 HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            part = sock.recv(1)
            assert part, head
            head += part
        return sock, head.decode().splitlines()[0]

    def open(self, target: str, connect: str = "") -> socket.socket:
        """A connection to a service; its agent may still be on its way."""
        sockets: list[socket.socket] = []

        def opened() -> bool:
            with contextlib.suppress(OSError):
                sock, status = self.ask(target, connect)
                if " 200 " in status:
                    sockets.append(sock)
                    return True
                sock.close()
            return False

        eventually_sync(opened, seconds=PATIENCE)
        return sockets[0]


@contextlib.contextmanager
def up(home: Path, *flags: str) -> Iterator[Fleet]:
    """Run a fleet of this shape, without anything between a user and a proxy's own socket."""
    with (home / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "fleet.cli", "fleet", "up", "--json", "--no-faults"),
                *("--home", str(home), *flags),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    with process.stdout:
        try:
            ready = json.loads(process.stdout.readline())
            yield Fleet(home, ready["connect"], ready["auths"][0], ready["proxies"], process)
        finally:
            children.stop([process], grace=20.0)
