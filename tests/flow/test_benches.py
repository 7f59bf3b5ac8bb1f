"""Every benchmark runs to its end with `--quick`, as a program. What it measures is judged by no test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.bench.__main__ import names
from tests.fakes import teleport
from tests.fakes.programs import skip_without
from tests.meta.house import ROOT

#: Of a benchmark that hangs: a `--quick` run takes less than 20 s on a quiet machine.
_TIMEOUT_SECONDS = 300
#: Figures of the benches whose figures depend on which peers are there.
_FIGURES = {"tunnel": {"tls_1_conn_to_openssh", "plain_1_conn_to_go", "deaf_reader_grew_mb"}}


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_bench_runs_quickly_to_its_end(name: str) -> None:
    """The last line is JSON with figures, targets, peers and missed targets; a missing peer skips the test, and its
    reason names the package."""
    if name == "watch":
        skip_without(teleport.missing_reason())
    output = _run("--quick", name)
    outcome = json.loads(output.splitlines()[-1])
    assert outcome.keys() == {"bench", "figures", "targets", "peers", "missed"}
    assert outcome["bench"] == name
    assert outcome["figures"]
    assert outcome["figures"].keys() >= _FIGURES.get(name, set())
    assert set(outcome["missed"]) <= outcome["targets"].keys()
    skip_without("; ".join(reason for peer, reason in outcome["peers"].items() if peer.endswith("_missing")))


def _run(*arguments: str) -> str:
    """Return the output of `python -m tests.bench`, which ends with 0."""
    # A benchmark makes an installation of its own, not that of the tests.
    env = {key: value for key, value in os.environ.items() if not key.startswith(("REFLOAT_", "DJANGO_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench", *arguments],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = process.communicate(timeout=_TIMEOUT_SECONDS)
    finally:
        if process.poll() is None:
            # Its children end with it.
            process.send_signal(signal.SIGINT)
            process.communicate()
    assert process.returncode == 0, errors[-4000:]
    return output
