"""Our own tunnel as real programs: `refloat tunnel serve`, `register` and `dial`, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleet.transport.certificate_authority import KeyPair
from tests.fakes.programs import Peer, run_program
from tests.meta.house import ROOT

_COMMAND = (sys.executable, "-m", "fleet.cli.main", "tunnel")


@dataclass(frozen=True, slots=True)
class TunnelProgram:
    """A started `refloat tunnel` program that is ready."""

    peer: Peer
    #: A server: where clients register.
    address: str = ""
    #: Local ports by the target they lead to.
    forwards: Mapping[str, str] = field(default_factory=dict)
    #: A server: host:port of its diag port.
    diag_address: str = ""


def environment() -> dict[str, str]:
    """Return the environment of a `refloat` program in any folder."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}


def argv(*args: str) -> list[str]:
    """A command line."""
    return [*_COMMAND, *args]


def server_keys(tls: KeyPair | None, *, mutual: bool) -> list[str]:
    """Flags of a server's TLS."""
    if tls is None:
        return []
    own = ["--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)]
    return [*own, "--tls-ca", str(tls.ca)] if mutual else own


def client_keys(tls: KeyPair | None, *, mutual: bool) -> list[str]:
    """Flags of a client's TLS."""
    if tls is None:
        return []
    own = ["--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)] if mutual else []
    return [*own, "--tls-ca", str(tls.ca)]


@contextlib.contextmanager
def _run_program(name: str, folder: Path, *args: str) -> Iterator[TunnelProgram]:
    with run_program(name, argv(*args), folder, env=environment()) as peer:
        ready = json.loads(peer.await_output(r'\{"event": "ready".*\}').group())
        yield TunnelProgram(peer, ready.get("listen", ""), ready.get("forwards", {}), ready.get("diag", ""))


def serve(
    folder: Path, *args: str, tls: KeyPair | None = None, mutual: bool = False, name: str = "our-server"
) -> contextlib.AbstractContextManager[TunnelProgram]:
    """Run a server."""
    return _run_program(name, folder, "serve", *args, *server_keys(tls, mutual=mutual))


def register(
    folder: Path,
    server: str,
    *args: str,
    tls: KeyPair | None = None,
    mutual: bool = False,
    name: str = "our-target",
) -> contextlib.AbstractContextManager[TunnelProgram]:
    """Run a client with targets, until it is registered."""
    return _run_program(name, folder, "register", "--server", server, *args, *client_keys(tls, mutual=mutual))


def dial(
    folder: Path,
    server: str,
    *args: str,
    tls: KeyPair | None = None,
    mutual: bool = False,
    name: str = "our-dialler",
) -> contextlib.AbstractContextManager[TunnelProgram]:
    """Run a client with local ports."""
    return _run_program(name, folder, "dial", "--server", server, *args, *client_keys(tls, mutual=mutual))


def dial_argv(server: str, target: str, *, tls: KeyPair | None = None, mutual: bool = False) -> list[str]:
    """Return the command line that opens one session on standard input and output."""
    return argv("dial", "--server", server, *client_keys(tls, mutual=mutual), target)
