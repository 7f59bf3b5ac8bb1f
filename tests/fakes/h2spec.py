"""h2spec, which tests how an HTTP/2 server treats what RFC 9113 and RFC 7541 forbid; built by `make peers`."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.fakes.programs import BUILT, PeerError

_PROGRAM = BUILT / "h2spec"
#: For one case; one that fails takes all of it. Seconds.
_TIMEOUT = 5


@dataclass(frozen=True, slots=True)
class Report:
    """The outcomes of one run, each case as `http2/5.1: half closed (remote): Sends a DATA frame`."""

    passed: frozenset[str]
    skipped_cases: frozenset[str]
    #: With what was expected, and what came instead.
    failures: dict[str, str]


def missing_reason() -> str:
    """Return why the program is not there, as a sentence; empty when it is."""
    return "" if _PROGRAM.exists() else "h2spec IS MISSING: run `make peers`, which needs a Go toolchain"


def run(port: int, folder: Path, *, name: str) -> Report:
    """Run every case against a port of this machine, without TLS. Raises PeerError."""
    path = folder / f"{name}.xml"
    process = subprocess.run(
        [str(_PROGRAM), "-h", "127.0.0.1", "-p", str(port), "-o", str(_TIMEOUT), "-j", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    if not path.exists():
        raise PeerError(f"h2spec wrote no report: {process.stdout[-2000:]} {process.stderr[-2000:]}")
    return read(path.read_text())


def read(report: str) -> Report:
    """Read a report in JUnit's format."""
    passed, skipped_cases, failures = set(), set(), {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = f"{case.get('package')}: {case.get('classname')}"
        failure = case.find("failure")
        if case.find("skipped") is not None:
            skipped_cases.add(name)
        elif failure is not None or case.find("error") is not None:
            failures[name] = " ".join((failure.text or "").split()) if failure is not None else "error"
        else:
            passed.add(name)
    return Report(frozenset(passed), frozenset(skipped_cases), failures)
