"""Other people's programs as peers: where `make peers` leaves them, how they start, what they said, how they end."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from fleet.processes import children
from tests.meta.house import ROOT

#: Where tests/fakes/peers.sh puts what it builds.
BUILT = ROOT / "var" / "peers"
#: For a program to come up on a machine that does other things too, seconds.
START_TIMEOUT = 120.0

T = TypeVar("T")


class PeerError(Exception):
    """A peer that did not come up; the sentence holds what it said."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A program that runs."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Of the process we started; it may have children."""
        return self.process.pid

    def said(self) -> str:
        """Everything it wrote, standard output and error."""
        return self.log.read_text(errors="replace")

    def await_words(self, pattern: str, *, seconds: float = START_TIMEOUT) -> re.Match[str]:
        """Wait until it has said something that matches. Raises PeerError when it ends or takes too long."""

        def found() -> re.Match[str] | None:
            return re.search(pattern, self.said())

        return self._await(found, f"to say {pattern!r}", seconds)

    def await_met(self, met: Callable[[], T | None], what: str, *, seconds: float = START_TIMEOUT) -> T:
        """Wait for anything else of it."""
        return self._await(met, what, seconds)

    def _await(self, met: Callable[[], T | None], what: str, seconds: float) -> T:
        deadline = time.monotonic() + seconds
        while True:
            result = met()
            if result:
                return result
            if self.process.poll() is not None:
                raise PeerError(f"{self.name} ended with {self.process.returncode}: {self.said()}")
            if time.monotonic() > deadline:
                raise PeerError(f"waited {seconds:g} s for {self.name} {what}; it said: {self.said()}")
            time.sleep(0.01)


@contextlib.contextmanager
def running(
    name: str, argv: Sequence[str], folder: Path, *, env: Mapping[str, str] | None = None
) -> Iterator[Peer]:
    """Run a program until the block ends; what it says goes to `folder/NAME.log`."""
    log = folder / f"{name}.log"
    with log.open("wb") as said:
        process = children.spawn(argv, env=env, log=said.fileno())
    try:
        yield Peer(name, process, log)
    finally:
        children.stop([process])


def skip_without(missing: str) -> None:
    """Skip a test when a program is missing, with the sentence that says which. In CI a root user could have installed
    the program, so the test fails."""
    if not missing:
        return
    if os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(missing)
    pytest.skip(missing)
