"""grpc-go on both sides of a gateway: a server and a client of its own, in tests/fakes/go.

Python's gRPC forgives what grpc-go does not: grpc-go ends calls at the deadline that it is told, on the server too,
and counts a connection that is closed under its calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.programs import BUILT, Peer, run_program

PROGRAMS = ("backend", "caller")


def missing_reason() -> str:
    """Why the programs are not there, as a sentence; empty when they are."""
    absent = [name for name in PROGRAMS if not (BUILT / f"grpc-{name}").exists()]
    if not absent:
        return ""
    return (
        f"PROGRAMS OF grpc-go ARE MISSING ({', '.join(absent)}): run `make peers`, which needs a Go toolchain"
    )


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The result of one call of grpc-go."""

    code: str
    details: str
    messages: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a script's calls, in order, and the number of connections they used."""

    results: list[list[CallOutcome]]
    connections: int

    def codes(self, number: int) -> set[str]:
        """The statuses of one call of the script, in Go's spelling."""
        return {outcome.code for outcome in self.results[number]}


@contextlib.contextmanager
def backend(
    folder: Path, name: str = "backend", *, listen: str = "127.0.0.1:0"
) -> Iterator[tuple[Peer, str]]:
    """Run the server; the program and its address."""
    argv = [str(BUILT / "grpc-backend"), "--listen", listen]
    with run_program(f"grpc-{name}", argv, folder) as peer:
        ready = json.loads(peer.await_output(r'\{"event":"ready".*\}').group())
        yield peer, ready["address"]


async def calls(address: str, *script: dict[str, Any]) -> Report:
    """Run the client with a script of calls."""
    program = await asyncio.create_subprocess_exec(
        str(BUILT / "grpc-caller"),
        *("--address", address),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    answer, log = await program.communicate(json.dumps(script).encode())
    assert program.returncode == 0, log.decode()
    report = json.loads(answer)
    return Report(
        [[CallOutcome(**outcome) for outcome in results] for results in report["results"]],
        report["connections"],
    )
