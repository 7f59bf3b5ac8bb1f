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
from tests.fakes.programs import Peer, running
from tests.meta.house import ROOT

_COMMAND = (sys.executable, "-m", "fleet.cli.main", "tunnel")


@dataclass(frozen=True, slots=True)
class Ours:
    """A program of ours that said it is ready."""

    peer: Peer
    #: A server: where clients register.
    address: str = ""
    #: Local ports by the target they lead to.
    forwards: Mapping[str, str] = field(default_factory=dict)


def environment() -> dict[str, str]:
    """For a program of ours in any folder."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}


def argv(*words: str) -> list[str]:
    """A command line."""
    return [*_COMMAND, *words]


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
def _started(name: str, folder: Path, *words: str) -> Iterator[Ours]:
    with running(name, argv(*words), folder, env=environment()) as peer:
        said = json.loads(peer.await_words(r'\{"event": "ready".*\}').group())
        yield Ours(peer, said.get("listen", ""), said.get("forwards", {}))


def serve(
    folder: Path, *words: str, tls: KeyPair | None = None, mutual: bool = False, name: str = "our-server"
) -> contextlib.AbstractContextManager[Ours]:
    """Run a server."""
    return _started(name, folder, "serve", *words, *server_keys(tls, mutual=mutual))


def register(
    folder: Path,
    server: str,
    *words: str,
    tls: KeyPair | None = None,
    mutual: bool = False,
    name: str = "our-target",
) -> contextlib.AbstractContextManager[Ours]:
    """Run a client with targets, until it is registered."""
    return _started(name, folder, "register", "--server", server, *words, *client_keys(tls, mutual=mutual))


def dial(
    folder: Path,
    server: str,
    *words: str,
    tls: KeyPair | None = None,
    mutual: bool = False,
    name: str = "our-dialler",
) -> contextlib.AbstractContextManager[Ours]:
    """Run a client with local ports."""
    return _started(name, folder, "dial", "--server", server, *words, *client_keys(tls, mutual=mutual))


def dial_argv(server: str, target: str, *, tls: KeyPair | None = None, mutual: bool = False) -> list[str]:
    """How one session on standard input and output is asked for."""
    return argv("dial", "--server", server, *client_keys(tls, mutual=mutual), target)
