"""Targets of the Makefile with a Python that only notes how it was called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.meta.house import ROOT

_PYTHON = """#!/bin/bash
echo "$*" >>"$(dirname "$0")/calls"
[[ "$*" == *" -m slow "* ]] || exit 0
exit {code}
"""


def _run_slow_tests(
    tmp_path: Path, arguments: str, *, code: int = 0
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run `make test-slow`, in which the slow tests end with a code; return the process and the arguments of each call
    of Python."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(_PYTHON.format(code=code))
    python.chmod(0o755)
    # A make around this test would give its own variables to this one.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    process = subprocess.run(
        ["make", "-o", "setup", "-o", "peers", "test-slow", f"VENV={tmp_path}", f"ARGS={arguments}"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    calls = python.with_name("calls")
    return process, calls.read_text().splitlines() if calls.exists() else []


@pytest.mark.parametrize(
    ("arguments", "code", "succeeds"),
    [
        ("", 0, True),
        ("", 1, False),
        ("", 5, False),
        ("-k x", 0, True),
        ("-k x", 1, False),
        ("-k x", 5, False),
    ],
)
def test_slow_tests_fail_if_none_is_collected(
    tmp_path: Path, arguments: str, code: int, succeeds: bool
) -> None:
    """Exit code 5 of pytest, of the whole suite and of a selection."""
    process, calls = _run_slow_tests(tmp_path, arguments, code=code)
    assert (process.returncode == 0) is succeeds, process.stdout + process.stderr
    assert calls


def test_slow_tests_end_with_random_examples_of_a_printed_seed(tmp_path: Path) -> None:
    """The printed command repeats them."""
    process, calls = _run_slow_tests(tmp_path, "")
    assert len(calls) == 2
    seed = calls[-1].partition("--hypothesis-seed ")[2].split()[0]
    assert "--hypothesis-profile random" in calls[-1]
    assert f"make laws SEED={seed}" in process.stdout


def test_selected_slow_tests_run_without_the_laws(tmp_path: Path) -> None:
    process, calls = _run_slow_tests(tmp_path, "-k x")
    assert process.returncode == 0
    assert [call.rpartition(" -k ")[2] for call in calls] == ["x"]
