"""The state, the start and the usage of a process by its pid."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fleet.processes import pids

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def test_own_process_is_running() -> None:
    """The pid and the start time are those of this process."""
    assert pids.state(os.getpid(), pids.start_ticks(os.getpid())) is pids.ProcessState.RUNNING


def test_pid_with_another_start_time_is_dead() -> None:
    """A recorded process is dead even if another process has its pid now."""
    assert pids.state(os.getpid(), expected_start_ticks=1) is pids.ProcessState.DEAD


def test_zombie_is_dead() -> None:
    """A process that has ended and was not awaited counts as dead."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        while pids.state(child.pid) is not pids.ProcessState.DEAD:
            pass
        assert child.returncode is None
        assert pids.usage(child.pid) is not None


def test_unknown_pid_has_no_start_and_no_usage() -> None:
    """Both functions return None."""
    assert pids.start_ticks(2**22 + 1) is None
    assert pids.usage(2**22 + 1) is None


def test_usage_of_own_process_is_plausible() -> None:
    """Memory is in bytes, and processor time in seconds."""
    usage = pids.usage(os.getpid())
    assert usage is not None
    assert 5e6 < usage.rss < 5e9
    assert 0 < usage.cpu < 10_000
