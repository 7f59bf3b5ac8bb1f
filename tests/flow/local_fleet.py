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
    """A running fleet, and the services that its agents expose."""

    home: Path
    #: The CONNECT ports of its proxies.
    connects: Sequence[str]
    auth: str
    #: gRPC addresses.
    proxies: Sequence[str]
    process: subprocess.Popen[bytes]
    service: Service = field(init=False)
    sshd: Sshd | None = None

    @property
    def connect(self) -> str:
        """The CONNECT port of the first proxy."""
        return self.connects[0]

    def refloat_argv(self, *args: str) -> list[str]:
        """Return the command line of `refloat` with these arguments."""
        return [sys.executable, "-m", "fleet.cli", *args, "--home", str(self.home)]

    def run(self, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a `refloat` command to its end."""
        argv = self.refloat_argv(*args)
        return subprocess.run(argv, input=stdin, capture_output=True, cwd=ROOT, timeout=PATIENCE, check=False)

    def connect_to(self, target: str, connect: str = "") -> tuple[socket.socket, str]:
        """Send CONNECT for a target to a proxy, by default the first; return the socket and the status line."""
        host, _, port = (connect or self.connect).rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout=PATIENCE)
        sock.sendall(f"CONNECT {target}:1 HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            part = sock.recv(1)
            assert part, head
            head += part
        return sock, head.decode().splitlines()[0]

    def open_connection(self, target: str, connect: str = "") -> socket.socket:
        """Connect to a service; retry until its agent has a tunnel."""
        sockets: list[socket.socket] = []

        def has_opened() -> bool:
            with contextlib.suppress(OSError):
                sock, status = self.connect_to(target, connect)
                if " 200 " in status:
                    sockets.append(sock)
                    return True
                sock.close()
            return False

        eventually_sync(has_opened, seconds=PATIENCE)
        return sockets[0]


@contextlib.contextmanager
def run_fleet(home: Path, *flags: str) -> Iterator[Fleet]:
    """Run a fleet of this shape, with no forwarder between a user and a proxy."""
    with (home / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "fleet.cli", "fleet", "up", "--json", "--no-forwarder"),
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
