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
    ("arguments", "says"),
    [
        (["--agents", "0"], "--agents"),
        (["--churn", "2"], "--churn"),
        (["--script", "/nowhere/at/all"], "No such file"),
        (["fault", "melt", "proxy-1"], "unknown action"),
        (["fault", "freeze", "proxy-1"], "no simulation runs on"),
    ],
)
def test_simulate_wrong_input_is_one_clear_line(home: Path, arguments: list[str], says: str) -> None:
    """Exit code 2 and a sentence, no traceback."""
    result = CliRunner().invoke(simulate, arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output


def test_simulate_script_wrong_stops_before_anything_starts(home: Path) -> None:
    """The line of the mistake is named."""
    result = CliRunner().invoke(simulate, ["--script", "-"], input="t=0 melt proxy-1\n")
    assert result.exit_code == 2
    assert "line 1" in result.output


def test_simulate_runs_takes_a_fault_and_ends_on_interrupt(home: Path) -> None:
    """Ready in one JSON line; a second start on the same folder is refused; Ctrl-C ends every process."""
    argv = [sys.executable, "-c", "from fleet.cli.local.simulate import simulate; simulate()"]
    shape = ["--agents", "30", "--proxies", "2", "--processes", "2", "--json"]
    with subprocess.Popen([*argv, *shape], stdout=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        told = CliRunner().invoke(simulate, ["fault", "freeze", "proxy-1"])
        advice = CliRunner().invoke(simulate, ["advice"])
        again = CliRunner().invoke(simulate, [])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert len(ready["auths"]) == 2
    assert told.output == "freeze: proxy-1\n"
    assert advice.output.startswith("each agent was advised at most 0 times per id")
    assert again.exit_code == 2
    assert "a simulation already runs" in again.output
    assert not any(psutil.pid_exists(pid) for pid in ready["pids"])
    assert not (home / "simulate.json").exists()


def test_simulate_interrupted_while_it_starts_leaves_nothing(home: Path) -> None:
    """Ctrl-C does not wait for a large fleet to be invented first."""
    argv = [sys.executable, "-c", "from fleet.cli.local.simulate import simulate; simulate()"]
    with subprocess.Popen([*argv, "--agents", "300000", "--processes", "1"], env=dict(os.environ)) as process:
        started: list[psutil.Process] = []
        deadline = time.monotonic() + 60
        while not started and time.monotonic() < deadline:
            started = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert started
    assert not any(child.is_running() for child in started)
