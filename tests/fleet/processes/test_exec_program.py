"""The program in between: it becomes what it was told to be, with the pid it has."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.processes import exec_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal is Linux's")


def _leashed(parent: int, *argv: str) -> tuple[subprocess.Popen[str], bytes]:
    ready, told = os.pipe()
    leashed = [
        sys.executable,
        "-I",
        "-S",
        exec_program.__file__,
        str(parent),
        str(int(signal.SIGTERM)),
        str(told),
        *argv,
    ]
    process = subprocess.Popen(leashed, stdout=subprocess.PIPE, text=True, pass_fds=(told,))
    os.close(told)
    with os.fdopen(ready, "rb") as pipe:
        return process, pipe.read()


def test_leash_becomes_the_program() -> None:
    """The same process, and no signal is ignored in it that our Python ignores."""
    process, trouble = _leashed(os.getpid(), "/bin/sh", "-c", "echo $$; grep SigIgn /proc/$$/status")
    said, _ = process.communicate()

    pid, _, ignored = said.partition("\n")
    assert (int(pid), trouble) == (process.pid, b"")
    assert not int(ignored.split()[1], 16) & 1 << signal.SIGPIPE - 1


def test_leash_of_a_parent_that_is_gone_starts_nothing() -> None:
    """Nobody would ever send the signal."""
    process, _ = _leashed(os.getpid() + 1, "/bin/echo", "up")
    said, _ = process.communicate()

    assert (process.returncode, said) == (1, "")


def test_leash_tells_what_is_in_the_way(tmp_path: Path) -> None:
    """The errno of exec, to whoever holds the other end."""
    broken = tmp_path / "broken"
    broken.write_text("no program")
    broken.chmod(0o755)

    process, trouble = _leashed(os.getpid(), str(broken))
    process.communicate()

    assert (process.returncode, int(trouble)) == (1, errno.ENOEXEC)
