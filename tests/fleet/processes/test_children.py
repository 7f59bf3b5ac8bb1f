"""Children end when they are stopped and when their parent dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.processes import children
from tests.fakes.waiting import eventually_sync, is_gone

_SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
_PROGRAM_IGNORING_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
_PARENT_PROGRAM = f"""
import sys, time
from fleet.processes import children
child = children.spawn({_SLEEPER!r})
print(child.pid, flush=True)
time.sleep(600)
"""

_FORKING_PROGRAM = """
import os
from fleet.processes import children
os.register_at_fork(after_in_child=lambda: print("forked", flush=True))
children.spawn(["true"]).wait()
print("spawned")
"""


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_child_ends_with_its_parent(signal_number: signal.Signals) -> None:
    """A parent that dies without cleaning up leaves no processes behind."""
    with subprocess.Popen([sys.executable, "-c", _PARENT_PROGRAM], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())

        parent.send_signal(signal_number)
        parent.wait()

    eventually_sync(lambda: is_gone(pid))


def test_stop_ends_a_frozen_child() -> None:
    """A stopped process does not handle SIGTERM: the child is resumed first, so that it needs no SIGKILL."""
    child = children.spawn(_SLEEPER)
    child.send_signal(signal.SIGSTOP)

    children.stop([child])

    assert child.returncode == -signal.SIGTERM


def test_stop_kills_a_child_that_ignores_sigterm(tmp_path: Path) -> None:
    """The child is killed after the grace period."""
    log_file = tmp_path / "said"
    with log_file.open("wb") as log:
        child = children.spawn([sys.executable, "-c", _PROGRAM_IGNORING_SIGTERM], log=log)
    eventually_sync(log_file.read_bytes)

    children.stop([child], grace=0.1)

    assert child.returncode == -signal.SIGKILL


def test_stop_keeps_the_return_code_of_an_ended_child() -> None:
    """Stopping an ended child has no effect."""
    child = children.spawn([sys.executable, "-c", "raise SystemExit(3)"])
    child.wait()

    children.stop([child])

    assert child.returncode == 3


def test_spawn_of_a_missing_program_raises_oserror() -> None:
    """The error names the program, and no process is started."""
    with pytest.raises(OSError, match="no-such-program"):
        children.spawn(["no-such-program"])


def test_spawn_of_an_invalid_program_raises_oserror(tmp_path: Path) -> None:
    """The error is the same if only exec detects it."""
    invalid_program = tmp_path / "broken"
    invalid_program.write_text("no program")
    invalid_program.chmod(0o755)

    with pytest.raises(OSError, match=r"Exec format error.*broken"):
        children.spawn([str(invalid_program)])


def test_spawn_runs_no_fork_handlers() -> None:
    """gRPC's fork handlers may abort the child; Python's own handlers show whether any run."""
    process = subprocess.run(
        [sys.executable, "-c", _FORKING_PROGRAM], capture_output=True, text=True, check=True
    )

    assert process.stdout == "spawned\n"


def test_child_has_its_own_session() -> None:
    """Ctrl-C on the terminal reaches the parent only, which ends its children in order."""
    child = children.spawn(_SLEEPER)

    eventually_sync(lambda: os.getsid(child.pid) == child.pid)
    children.stop([child])


def test_log_contains_stdout_and_stderr(tmp_path: Path) -> None:
    """Both streams are written to the same log."""
    log_file = tmp_path / "said"
    with log_file.open("wb") as log:
        child = children.spawn(
            [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)"], log=log
        )
    child.wait()

    assert sorted(log_file.read_text().split()) == ["err", "out"]
