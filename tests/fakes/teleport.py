"""A stand-in for a Teleport cluster (tests/fakes/go/teleport): auths and proxies that publish Teleport's API, and
Teleport's own client. Both are built on Teleport's Go module by `make peers`.

The stand-in proves the wire. What a role may do in it, and what a sick auth serves, is our reading of documentation.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from fleet.transport.client_identity import ClientIdentity
from tests.fakes.programs import BUILT, Peer, run_program

PROGRAMS = ("teleport-standin", "teleport-client", "teleport-descriptors")


def missing_reason() -> str:
    """Why the programs are not there, as a sentence; empty when they are."""
    absent = [name for name in PROGRAMS if not (BUILT / name).exists()]
    if not absent:
        return ""
    return f"PROGRAMS ON TELEPORT'S API ARE MISSING ({', '.join(absent)}): run `make peers`, which needs Go 1.22.7"


@dataclass(frozen=True, slots=True)
class TeleportCluster:
    """A running stand-in; `change` and `state` are JSON as control.go declares it."""

    peer: Peer
    control: str
    ready: dict[str, Any]

    @property
    def identity(self) -> Path:
        """The identity file of user refloat."""
        return Path(self.ready["identity"]["identity"])

    @property
    def tls_files(self) -> tuple[Path, Path, Path]:
        """Key, certificate and CA of the same user."""
        files = self.ready["identity"]
        return Path(files["key"]), Path(files["certificate"]), Path(files["authority"])

    def auth_address(self, number: int = 1) -> str:
        """Return host:port of an auth's API."""
        return str(self.ready["auths"][number - 1]["address"])

    def diag_address(self, kind: str, number: int = 1) -> str:
        """Return host:port of the diag port of one of the `auths` or `proxies`."""
        return str(self.ready[kind][number - 1]["diag"])

    def state(self) -> dict[str, Any]:
        """Return the whole state, with calls and bytes sent by method."""
        return self._request("state", None)

    def change(self, path: str, **values: Any) -> dict[str, Any]:
        """Change settings, agents, auths/ID, proxies/ID, leaves/NAME, networking, watches or identity."""
        return self._request(path, json.dumps(values).encode())

    def _request(self, path: str, body: bytes | None) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.control}/{path}", body, timeout=300) as response:
            response_body: dict[str, Any] = json.load(response)
            return response_body


@contextlib.contextmanager
def teleport_cluster(
    folder: Path, *, auths: int = 2, proxies: int = 2, identity_ttl: str = "1h"
) -> Iterator[TeleportCluster]:
    """Run a stand-in; its identity files are in the folder."""
    argv = [str(BUILT / "teleport-standin"), "--folder", str(folder), "--identity-ttl", identity_ttl]
    argv += ["--auths", str(auths), "--proxies", str(proxies)]
    with run_program("teleport-standin", argv, folder) as peer:
        ready = json.loads(peer.await_output(r'\{.*"event":"ready".*\}\n').group())
        yield TeleportCluster(peer, ready["control"], ready)


def open_channel(address: str, identity: ClientIdentity) -> grpc.Channel:
    """Return a channel to an auth, which is known by Teleport's name."""
    credentials = grpc.ssl_channel_credentials(
        identity.authorities, identity.private_key, identity.certificate
    )
    options = [("grpc.ssl_target_name_override", identity.server_name)]
    return grpc.secure_channel(address, credentials, options)


@dataclass(frozen=True, slots=True)
class ClientOutcome:
    """What one call of Teleport's client gave: its value, or the error and the kind that the client makes of it."""

    ok: bool
    kind: str
    error: str
    value: Any


def run_client(
    address: str,
    *,
    identity: Path | None = None,
    tls_files: tuple[Path, Path, Path] | None = None,
    http_address: str = "",
    http_writes: bool = False,
) -> dict[str, ClientOutcome]:
    """Run Teleport's own client against an auth, with an identity or key, certificate and CA.

    Returns its calls by name; with an HTTP address also those of the auth's HTTP API, with Teleport's types.
    """
    argv = [str(BUILT / "teleport-client"), "--address", address]
    if identity is not None:
        argv += ["--identity", str(identity)]
    if tls_files is not None:
        key, certificate, authority = map(str, tls_files)
        argv += ["--key", key, "--cert", certificate, "--ca", authority]
    if http_address:
        argv += ["--http", http_address, *(["--http-writes"] if http_writes else [])]
    completed = subprocess.run(argv, capture_output=True, timeout=120, check=False)
    assert completed.returncode == 0, completed.stderr.decode()
    return {name: ClientOutcome(**outcome) for name, outcome in json.loads(completed.stdout).items()}


def read_descriptors() -> dict[str, Any]:
    """Return the messages, enums and methods of Teleport's API, by full name."""
    completed = subprocess.run(
        [str(BUILT / "teleport-descriptors")], capture_output=True, timeout=120, check=True
    )
    response_body: dict[str, Any] = json.loads(completed.stdout)
    return response_body
