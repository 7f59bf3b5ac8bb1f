from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from fleet.cli.local.simulate import simulate


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REFLOAT_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agents", "0"], "--agents"),
        (["--churn", "2"], "--churn"),
        (["--script", "/nowhere/at/all"], "No such file"),
        (["fault", "melt", "proxy-1"], "unknown action"),
        (["fault", "freeze", "proxy-1"], "no simulation runs on"),
    ],
)
def test_invalid_arguments_fail_with_one_line(home: Path, arguments: list[str], message: str) -> None:
    """Exit code 2 and a sentence, no traceback."""
    outcome = CliRunner().invoke(simulate, arguments)
    assert outcome.exit_code == 2
    assert message in outcome.output
    assert "Traceback" not in outcome.output


def test_invalid_script_fails_before_the_start(home: Path) -> None:
    """The error names the line."""
    outcome = CliRunner().invoke(simulate, ["--script", "-"], input="t=0 melt proxy-1\n")
    assert outcome.exit_code == 2
    assert "line 1" in outcome.output


def test_simulation_accepts_a_fault_and_ends_on_interrupt(home: Path) -> None:
    """Ready in one JSON line; a second start on the same folder is refused; Ctrl-C ends every process."""
    argv = [sys.executable, "-c", "from fleet.cli.local.simulate import simulate; simulate()"]
    shape = ["--agents", "30", "--proxies", "2", "--processes", "2", "--json"]
    with subprocess.Popen([*argv, *shape], stdout=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        freeze_outcome = CliRunner().invoke(simulate, ["fault", "freeze", "proxy-1"])
        advice_outcome = CliRunner().invoke(simulate, ["advice"])
        second_start = CliRunner().invoke(simulate, [])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert len(ready["auths"]) == 2
    assert freeze_outcome.output == "freeze: proxy-1\n"
    assert advice_outcome.output.startswith("each agent was advised at most 0 times per id")
    assert second_start.exit_code == 2
    assert "a simulation already runs" in second_start.output
    assert not any(psutil.pid_exists(pid) for pid in ready["pids"])
    assert not (home / "simulate.json").exists()


def test_simulation_interrupted_while_starting_leaves_no_process(home: Path) -> None:
    """Ctrl-C does not wait for a large fleet to be invented first."""
    argv = [sys.executable, "-c", "from fleet.cli.local.simulate import simulate; simulate()"]
    with subprocess.Popen([*argv, "--agents", "300000", "--processes", "1"], env=dict(os.environ)) as process:
        children: list[psutil.Process] = []
        deadline = time.monotonic() + 60
        while not children and time.monotonic() < deadline:
            children = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert children
    assert not any(child.is_running() for child in children)
