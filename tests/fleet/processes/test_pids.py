"""A pid means one process, and the kernel knows how it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fleet.processes import pids

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def test_state_of_ourselves_is_running() -> None:
    """We run."""
    assert pids.state(os.getpid(), pids.start_ticks(os.getpid())) is pids.ProcessState.RUNNING


def test_state_of_a_pid_that_was_given_to_another_is_dead() -> None:
    """A pid from a file is dead when the process it named is, whoever has it now."""
    assert pids.state(os.getpid(), expected_start=1) is pids.ProcessState.DEAD


def test_state_of_a_zombie_is_dead() -> None:
    """A process that only waits to be reaped answers nobody."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        while pids.state(child.pid) is not pids.ProcessState.DEAD:
            pass
        assert child.returncode is None
        assert pids.usage(child.pid) is not None


def test_unknown_pid_has_no_birth_and_no_usage() -> None:
    """What is not there has used nothing."""
    assert pids.start_ticks(2**22 + 1) is None
    assert pids.usage(2**22 + 1) is None


def test_usage_of_ourselves_is_sane() -> None:
    """Memory in bytes, processor time in seconds."""
    used = pids.usage(os.getpid())
    assert used is not None
    assert 5e6 < used.rss < 5e9
    assert 0 < used.cpu < 10_000
