"""A stock grpc-go server whose methods echo: tests/fakes/go/echo, built by `make peers`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.programs import BUILT, run_program

_PROGRAM = BUILT / "echo"


def missing_reason() -> str:
    """Return why the program is not there, as a sentence; empty when it is."""
    return (
        ""
        if _PROGRAM.exists()
        else "THE GO ECHO SERVER IS MISSING: run `make peers`, which needs a Go toolchain"
    )


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Run the server, and return where it listens."""
    with run_program("go-echo", [str(_PROGRAM)], folder) as peer:
        address: str = json.loads(peer.await_output(r'\{"event":"ready".*\}').group())["grpc"]
        yield address
