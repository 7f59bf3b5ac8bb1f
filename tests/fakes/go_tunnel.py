"""The real Go peer: the unmodified programs of github.com/openconfig/grpctunnel, and one TCP listener over its library.

Known of them (v0.2.0): cmd/client forgets to pass --ca_file, so it does TLS only when it has a certificate of its
own; it looks for its target once a second or so; it does not end when its session does.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.processes import valkey
from fleet.transport.certificate_authority import KeyPair
from tests.fakes.programs import BUILT, Peer, run_program

PROGRAMS = ("server", "target", "client", "listener")


def missing_reason() -> str:
    """Why the Go peers are not there, as a sentence; empty when they are."""
    absent = [name for name in PROGRAMS if not (BUILT / name).exists()]
    if not absent:
        return ""
    return f"GO PEERS ARE MISSING ({', '.join(absent)}): run `make peers`, which needs a Go toolchain"


@dataclass(frozen=True, slots=True)
class GoServer:
    """A tunnel server, and for `listener` where it takes TCP connections."""

    peer: Peer
    #: Where tunnel clients register.
    address: str
    listen: str = ""

    def await_target(self, name: str, kind: str) -> None:
        """Wait until the target is registered: sessions asked for earlier would be refused."""
        self.peer.await_output(rf"handling target addition: \({name}:{kind}\)")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def _server_keys(tls: KeyPair | None, *, mutual: bool) -> list[str]:
    if tls is None:
        return []
    own = ["--cert_file", str(tls.certificate), "--key_file", str(tls.key)]
    return [*own, "--ca_file", str(tls.ca)] if mutual else own


@contextlib.contextmanager
def server(folder: Path, *, tls: KeyPair | None = None, mutual: bool = False) -> Iterator[GoServer]:
    """Run cmd/server, which bridges between tunnel clients."""
    address = f"127.0.0.1:{valkey.find_free_port()}"
    argv = [str(BUILT / "server"), "--tunnel_address", address, *_server_keys(tls, mutual=mutual)]
    with run_program("go-server", argv, folder) as peer:
        peer.await_condition(lambda: _answers(address), "to listen")
        yield GoServer(peer, address)


@contextlib.contextmanager
def listener(
    folder: Path, target: str, kind: str, *, tls: KeyPair | None = None, max_age: str = "0s"
) -> Iterator[GoServer]:
    """Run our listener over their library: every TCP connection becomes a session to `target`."""
    argv = [str(BUILT / "listener"), "--target", target, "--target_type", kind]
    argv += ["--max_connection_age", max_age]
    with run_program("go-listener", [*argv, *_server_keys(tls, mutual=False)], folder) as peer:
        ready = json.loads(peer.await_output(r'\{"event":"ready".*\}').group())
        yield GoServer(peer, ready["tunnel"], ready["listen"])


@contextlib.contextmanager
def target(
    folder: Path,
    server: str,
    dials: Mapping[tuple[str, str], str],
    *,
    tls: KeyPair | None = None,
    mutual: bool = False,
) -> Iterator[Peer]:
    """Run cmd/target: register every (name, type) of `dials` at a server, and dial its address for each session."""
    config = folder / "go-target.cfg"
    config.write_text(_target_config(server, dials, tls, mutual=mutual))
    with run_program("go-target", [str(BUILT / "target"), "--config_file", str(config)], folder) as peer:
        yield peer


def _target_config(
    server: str, dials: Mapping[tuple[str, str], str], tls: KeyPair | None, *, mutual: bool
) -> str:
    """What cmd/target reads, as protobuf text."""
    files: dict[str, Path] = {}
    if tls is not None:
        files["ca_file"] = tls.ca
        if mutual:
            files |= {"cert_file": tls.certificate, "key_file": tls.key}
    keys = " ".join(f'{name}: "{path}"' for name, path in files.items())
    credentials = f"credentials {{ tls {{ {keys} }} }}" if keys else ""
    lines = [f'tunnel_server_default {{ tunnel_server_address: "{server}" {credentials} }}']
    lines += [
        f'tunnel_target {{ target: "{name}" type: "{kind}" dial_address: "{address}" }}'
        for (name, kind), address in dials.items()
    ]
    return "\n".join(lines) + "\n"


def client_argv(server: str, name: str, kind: str, *, tls: KeyPair | None = None) -> list[str]:
    """Return the command line of cmd/client: one session to (name, type) on standard input and output.

    With `tls` it is mutual TLS, the only kind it can do.
    """
    argv = [str(BUILT / "client"), "--tunnel_server_address", server]
    argv += ["--dial_target", name, "--dial_target_type", kind]
    if tls is not None:
        argv += ["--cert_file", str(tls.certificate), "--key_file", str(tls.key), "--ca_file", str(tls.ca)]
    return argv
