"""What the tunnel's bench compares: each variant runs in processes of its own and gives a TCP address to connect to."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from fleet.transport import certificate_authority
from fleet.transport.certificate_authority import KeyPair
from tests.fakes import go_tunnel, openssh
from tests.fakes.programs import Peer, running
from tests.meta.house import ROOT

#: How the target is registered everywhere.
_NAME, _KIND = "bench", "TCP"


@dataclass(frozen=True, slots=True)
class Ground:
    """What every variant stands on."""

    stack: ExitStack
    folder: Path
    #: The traffic's server: what sessions end at.
    target: str
    keys: KeyPair

    def room(self, name: str) -> Path:
        """A folder for one variant."""
        room = self.folder / name
        room.mkdir()
        return room


@dataclass(frozen=True, slots=True)
class Running:
    """A variant that runs."""

    #: Where its user connects to.
    address: str
    #: The processes that carry the bytes; their children count too.
    bridges: Sequence[Peer] = ()

    def _all(self) -> list[psutil.Process]:
        mine = [psutil.Process(peer.pid) for peer in self.bridges]
        return mine + [child for process in mine for child in process.children(recursive=True)]

    def cpu(self) -> float:
        """Seconds of CPU, user and system, that the processes have used."""
        times = [process.cpu_times() for process in self._all()]
        return sum(taken.user + taken.system for taken in times)

    def rss(self) -> float:
        """MB of memory that the processes hold."""
        return sum(process.memory_info().rss for process in self._all()) / 1e6


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to carry a TCP connection."""

    name: str
    start: Callable[[Ground], Running]
    #: Why it is not there, as a sentence; empty when it is.
    missing: Callable[[], str] = str
    #: Carries bytes for others: measured in MB and sessions too. Otherwise by its round trip alone.
    whole: bool = True


def make_keys(folder: Path, name: str = "bench") -> KeyPair:
    """A certificate for 127.0.0.1 and `name`, and the CA that signed it."""
    now = datetime.datetime.now(datetime.UTC)
    return certificate_authority.issue(
        certificate_authority.ensure_authority(folder, now=now), name, role="proxy", now=now
    )


def python(name: str, ground: Ground, *words: str) -> tuple[Peer, dict[str, str]]:
    """Run `python -m WORDS` and return what its ready line says."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    peer = ground.stack.enter_context(running(name, [sys.executable, "-m", *words], ground.folder, env=env))
    said: dict[str, str] = json.loads(peer.await_words(r'\{"event": ?"ready".*\}').group())
    return peer, said


def _direct(ground: Ground) -> Running:
    return Running(ground.target)


def _proxy(ground: Ground) -> Running:
    peer, said = python("proxy", ground, "tests.bench._bare", "proxy", "--to", ground.target)
    return Running(said["listen"], [peer])


def _openssh(*flags: str, name: str) -> Callable[[Ground], Running]:
    def start(ground: Ground) -> Running:
        room = ground.room(name)
        server = ground.stack.enter_context(openssh.sshd(room))
        forward = openssh.reverse_forward(server, room, ground.target, flags)
        peer, address = ground.stack.enter_context(forward)
        return Running(address, [server.peer, peer])

    return start


def _go(*, tls: bool) -> Callable[[Ground], Running]:
    def start(ground: Ground) -> Running:
        room = ground.room("go_tls" if tls else "go")
        keys = ground.keys if tls else None
        server = ground.stack.enter_context(go_tunnel.listener(room, _NAME, _KIND, tls=keys))
        dials = {(_NAME, _KIND): ground.target}
        target = ground.stack.enter_context(go_tunnel.target(room, server.address, dials, tls=keys))
        server.await_target(_NAME, _KIND)
        return Running(server.listen, [server.peer, target])

    return start


def _ours(*, tls: bool) -> Callable[[Ground], Running]:
    return lambda ground: start_ours(ground, tls=tls, name="tls" if tls else "plain")


def start_ours(ground: Ground, *, tls: bool, name: str) -> Running:
    """`refloat tunnel serve` with a local listener, and `refloat tunnel register` behind it."""
    command = ("fleet.cli.main", "tunnel")
    keys = ground.keys
    serve_keys = ["--tls-cert", str(keys.certificate), "--tls-key", str(keys.key)] if tls else []
    forward = ["--forward", f"127.0.0.1:0={_NAME}:{_KIND}"]
    server, said = python(
        f"{name}-serve", ground, *command, "serve", "--listen", "127.0.0.1:0", *forward, *serve_keys
    )
    dial_keys = ["--tls-ca", str(keys.ca)] if tls else []
    target = f"{_NAME}:{_KIND}={ground.target}"
    register = (*command, "register", "--server", said["listen"], "--target", target)
    client, _ = python(f"{name}-register", ground, *register, *dial_keys)
    return Running(said["forwards"][f"{_NAME}:{_KIND}"], [server, client])  # type: ignore[index] # JSON


def _ours_missing() -> str:
    there = importlib.util.find_spec("fleet.cli.tunnel") is not None
    return "" if there else "refloat tunnel IS MISSING: this tree has no fleet/cli/tunnel.py"


#: In the order in which they take their turns.
VARIANTS = (
    Variant("direct", _direct),
    Variant("asyncio_proxy", _proxy, whole=False),
    Variant("openssh", _openssh(name="openssh"), openssh.missing),
    Variant("plain", _ours(tls=False), _ours_missing),
    Variant("go", _go(tls=False), go_tunnel.missing),
    Variant("tls", _ours(tls=True), _ours_missing),
    Variant("go_tls", _go(tls=True), go_tunnel.missing),
    # Its default cipher is not the one that this kind of processor does best: for the record.
    Variant("openssh_aes", _openssh("-c", "aes128-gcm@openssh.com", name="openssh_aes"), openssh.missing),
)
