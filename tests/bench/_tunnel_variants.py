"""The variants of the tunnel benchmark: each runs in its own processes and has a TCP address to connect to."""

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
from tests.fakes.programs import Peer, run_program
from tests.meta.house import ROOT

#: How the target is registered everywhere.
_NAME, _KIND = "bench", "TCP"


@dataclass(frozen=True, slots=True)
class VariantSetup:
    """What every variant needs to start."""

    stack: ExitStack
    folder: Path
    #: The traffic's server: what sessions end at.
    target: str
    keys: KeyPair

    def make_folder(self, name: str) -> Path:
        """A folder for one variant."""
        room = self.folder / name
        room.mkdir()
        return room


@dataclass(frozen=True, slots=True)
class StartedVariant:
    """A running variant: its address and processes."""

    #: Where its user connects to.
    address: str
    #: The processes that carry the bytes; their children count too.
    bridges: Sequence[Peer] = ()

    def _all(self) -> list[psutil.Process]:
        parents = [psutil.Process(peer.pid) for peer in self.bridges]
        return parents + [child for process in parents for child in process.children(recursive=True)]

    def cpu(self) -> float:
        """Seconds of CPU, user and system, that the processes have used."""
        times = [process.cpu_times() for process in self._all()]
        return sum(cpu_times.user + cpu_times.system for cpu_times in times)

    def rss(self) -> float:
        """MB of memory that the processes hold."""
        return sum(process.memory_info().rss for process in self._all()) / 1e6


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to carry a TCP connection."""

    name: str
    start: Callable[[VariantSetup], StartedVariant]
    #: Why the variant cannot run, as a sentence; empty when it can.
    absence: Callable[[], str] = str
    #: Carries bytes for others: measured in MB and sessions too. Otherwise by its round trip alone.
    carries_bytes: bool = True


def make_keys(folder: Path, name: str = "bench") -> KeyPair:
    """A certificate for 127.0.0.1 and `name`, and the CA that signed it."""
    now = datetime.datetime.now(datetime.UTC)
    return certificate_authority.issue(
        certificate_authority.ensure_authority(folder, now=now), name, role="proxy", now=now
    )


def run_python(name: str, ground: VariantSetup, *args: str) -> tuple[Peer, dict[str, str]]:
    """Run `python -m ARGS` and return its ready line."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    peer = ground.stack.enter_context(
        run_program(name, [sys.executable, "-m", *args], ground.folder, env=env)
    )
    ready: dict[str, str] = json.loads(peer.await_output(r'\{"event": ?"ready".*\}').group())
    return peer, ready


def _direct(ground: VariantSetup) -> StartedVariant:
    return StartedVariant(ground.target)


def _proxy(ground: VariantSetup) -> StartedVariant:
    peer, ready = run_python("proxy", ground, "tests.bench._bare", "proxy", "--to", ground.target)
    return StartedVariant(ready["listen"], [peer])


def _openssh(*flags: str, name: str) -> Callable[[VariantSetup], StartedVariant]:
    def start(ground: VariantSetup) -> StartedVariant:
        room = ground.make_folder(name)
        server = ground.stack.enter_context(openssh.sshd(room))
        forward = openssh.reverse_forward(server, room, ground.target, flags)
        peer, address = ground.stack.enter_context(forward)
        return StartedVariant(address, [server.peer, peer])

    return start


def _go(*, tls: bool) -> Callable[[VariantSetup], StartedVariant]:
    def start(ground: VariantSetup) -> StartedVariant:
        room = ground.make_folder("go_tls" if tls else "go")
        keys = ground.keys if tls else None
        server = ground.stack.enter_context(go_tunnel.listener(room, _NAME, _KIND, tls=keys))
        dials = {(_NAME, _KIND): ground.target}
        target = ground.stack.enter_context(go_tunnel.target(room, server.address, dials, tls=keys))
        server.await_target(_NAME, _KIND)
        return StartedVariant(server.listen, [server.peer, target])

    return start


def _refloat_tunnel(*, tls: bool) -> Callable[[VariantSetup], StartedVariant]:
    return lambda ground: start_refloat_tunnel(ground, tls=tls, name="tls" if tls else "plain")


def start_refloat_tunnel(ground: VariantSetup, *, tls: bool, name: str) -> StartedVariant:
    """`refloat tunnel serve` with a local listener, and `refloat tunnel register` behind it."""
    command = ("fleet.cli.main", "tunnel")
    keys = ground.keys
    serve_keys = ["--tls-cert", str(keys.certificate), "--tls-key", str(keys.key)] if tls else []
    forward = ["--forward", f"127.0.0.1:0={_NAME}:{_KIND}"]
    server, ready = run_python(
        f"{name}-serve", ground, *command, "serve", "--listen", "127.0.0.1:0", *forward, *serve_keys
    )
    dial_keys = ["--tls-ca", str(keys.ca)] if tls else []
    target = f"{_NAME}:{_KIND}={ground.target}"
    register = (*command, "register", "--server", ready["listen"], "--target", target)
    client, _ = run_python(f"{name}-register", ground, *register, *dial_keys)
    return StartedVariant(ready["forwards"][f"{_NAME}:{_KIND}"], [server, client])  # type: ignore[index] # JSON


def _refloat_absence() -> str:
    is_there = importlib.util.find_spec("fleet.cli.tunnel") is not None
    return "" if is_there else "refloat tunnel IS MISSING: this tree has no fleet/cli/tunnel.py"


#: In the order of their turns.
VARIANTS = (
    Variant("direct", _direct),
    Variant("asyncio_proxy", _proxy, carries_bytes=False),
    Variant("openssh", _openssh(name="openssh"), openssh.missing_reason),
    Variant("plain", _refloat_tunnel(tls=False), _refloat_absence),
    Variant("go", _go(tls=False), go_tunnel.missing_reason),
    Variant("tls", _refloat_tunnel(tls=True), _refloat_absence),
    Variant("go_tls", _go(tls=True), go_tunnel.missing_reason),
    # Its default cipher is not the one that this kind of processor does best: for the record.
    Variant(
        "openssh_aes", _openssh("-c", "aes128-gcm@openssh.com", name="openssh_aes"), openssh.missing_reason
    ),
)
