"""Children end when they are told to, and when their parent dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.processes import children
from tests.fakes.waiting import eventually_sync, gone

_SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
_PARENT = f"""
import sys, time
from fleet.processes import children
child = children.spawn({_SLEEPER!r})
print(child.pid, flush=True)
time.sleep(600)
"""

_FORKING = """
import os
from fleet.processes import children
os.register_at_fork(after_in_child=lambda: print("forked", flush=True))
children.spawn(["true"]).wait()
print("spawned")
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_child_ends_with_its_parent(sent: signal.Signals) -> None:
    """A parent that dies without a chance to clean up leaves nothing behind."""
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())

        parent.send_signal(sent)
        parent.wait()

    eventually_sync(lambda: gone(pid))


def test_stop_ends_a_frozen_child() -> None:
    """SIGSTOP hides SIGTERM: the child is continued first, so a clean end needs no SIGKILL."""
    child = children.spawn(_SLEEPER)
    child.send_signal(signal.SIGSTOP)

    children.stop([child])

    assert child.returncode == -signal.SIGTERM


def test_stop_kills_a_child_that_ignores_sigterm(tmp_path: Path) -> None:
    """After its grace a child is killed."""
    said = tmp_path / "said"
    with said.open("wb") as log:
        child = children.spawn([sys.executable, "-c", _STUBBORN], log=log)
    eventually_sync(said.read_bytes)

    children.stop([child], grace=0.1)

    assert child.returncode == -signal.SIGKILL


def test_stop_of_an_ended_child_does_nothing() -> None:
    """A child that ended by itself keeps its own return code."""
    child = children.spawn([sys.executable, "-c", "raise SystemExit(3)"])
    child.wait()

    children.stop([child])

    assert child.returncode == 3


def test_spawn_of_a_missing_program_raises_oserror() -> None:
    """The caller says what is missing; nothing is started."""
    with pytest.raises(OSError, match="no-such-program"):
        children.spawn(["no-such-program"])


def test_spawn_of_what_is_no_program_raises_oserror(tmp_path: Path) -> None:
    """Also when it is found only by starting it."""
    broken = tmp_path / "broken"
    broken.write_text("no program")
    broken.chmod(0o755)

    with pytest.raises(OSError, match=r"Exec format error.*broken"):
        children.spawn([str(broken)])


def test_spawn_runs_nothing_in_a_copy_of_the_parent() -> None:
    """gRPC's handlers in such a copy may abort it; Python's own are a sign of one."""
    done = subprocess.run([sys.executable, "-c", _FORKING], capture_output=True, text=True, check=True)

    assert done.stdout == "spawned\n"


def test_child_has_a_session_of_its_own() -> None:
    """Ctrl-C on the terminal reaches us alone, and we end children in order."""
    child = children.spawn(_SLEEPER)

    eventually_sync(lambda: os.getsid(child.pid) == child.pid)
    children.stop([child])


def test_log_takes_output_and_errors(tmp_path: Path) -> None:
    """Both streams go to the one log."""
    said = tmp_path / "said"
    with said.open("wb") as log:
        child = children.spawn(
            [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)"], log=log
        )
    child.wait()

    assert sorted(said.read_text().split()) == ["err", "out"]
