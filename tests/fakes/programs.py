"""Programs of other projects as peers: their path from `make peers`, their start, output and end."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from fleet.processes import children
from tests.meta.house import ROOT
from tests.skips import must_run_all

#: Where tests/fakes/peers.sh puts what it builds.
BUILT = ROOT / "var" / "peers"
#: For a program to come up on a machine that does other things too, seconds.
START_TIMEOUT = 120.0

T = TypeVar("T")


class PeerError(Exception):
    """A peer did not start; the message has its output."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A running program."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The id of the started process; it may have children."""
        return self.process.pid

    def output_text(self) -> str:
        """Return everything the program wrote to standard output and error."""
        return self.log.read_text(errors="replace")

    def await_output(self, pattern: str, *, seconds: float = START_TIMEOUT) -> re.Match[str]:
        """Wait until the output matches a pattern. Raises PeerError when the program ends or takes too long."""

        def match_output() -> re.Match[str] | None:
            return re.search(pattern, self.output_text())

        return self._await(match_output, f"to say {pattern!r}", seconds)

    def await_condition(
        self, condition: Callable[[], T | None], description: str, *, seconds: float = START_TIMEOUT
    ) -> T:
        """Wait for another condition of the program."""
        return self._await(condition, description, seconds)

    def _await(self, condition: Callable[[], T | None], description: str, seconds: float) -> T:
        deadline = time.monotonic() + seconds
        while True:
            outcome = condition()
            if outcome:
                return outcome
            if self.process.poll() is not None:
                raise PeerError(f"{self.name} ended with {self.process.returncode}: {self.output_text()}")
            if time.monotonic() > deadline:
                raise PeerError(
                    f"waited {seconds:g} s for {self.name} {description}; it said: {self.output_text()}"
                )
            time.sleep(0.01)


@contextlib.contextmanager
def run_program(
    name: str, argv: Sequence[str], folder: Path, *, env: Mapping[str, str] | None = None
) -> Iterator[Peer]:
    """Run a program until the block ends; its output goes to `folder/NAME.log`."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = children.spawn(argv, env=env, log=output.fileno())
    try:
        yield Peer(name, process, log)
    finally:
        children.stop([process])


def skip_without(missing_program: str) -> None:
    """Skip a test when a program is missing, with the sentence that says which. In CI a root user could have installed
    the program, so the test fails."""
    if not missing_program:
        return
    if must_run_all():
        pytest.fail(missing_program)
    pytest.skip(missing_program)


def skip_without_go_program(program: Path) -> None:
    """Skip a test without a program that `make peers` builds where the machine's Go is new enough."""
    if program.exists():
        return
    compiler = shutil.which("go")
    if compiler:
        version = subprocess.run(
            [compiler, "env", "GOVERSION"], check=True, capture_output=True, text=True
        ).stdout
        match = re.match(r"go(\d+)\.(\d+)", version)
        if match and (int(match[1]), int(match[2])) < (1, 26):
            pytest.skip("this machine's Go is older than 1.26")
    skip_without(f"{program.name} is missing: run `make peers`, which needs Go 1.26 or newer")
