"""The intermediate program that arranges the parent-death signal and then becomes the real program."""

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


def _start_leashed(parent: int, *argv: str) -> tuple[subprocess.Popen[str], bytes]:
    ready, error_pipe = os.pipe()
    command = [
        sys.executable,
        "-I",
        "-S",
        exec_program.__file__,
        str(parent),
        str(int(signal.SIGTERM)),
        str(error_pipe),
        *argv,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=(error_pipe,))
    os.close(error_pipe)
    with os.fdopen(ready, "rb") as pipe:
        return process, pipe.read()


def test_started_program_keeps_its_pid_and_default_signals() -> None:
    """The program does not ignore the signals that Python ignores."""
    process, error_text = _start_leashed(os.getpid(), "/bin/sh", "-c", "echo $$; grep SigIgn /proc/$$/status")
    output, _ = process.communicate()

    pid, _, ignored_signals = output.partition("\n")
    assert (int(pid), error_text) == (process.pid, b"")
    assert not int(ignored_signals.split()[1], 16) & 1 << signal.SIGPIPE - 1


def test_program_of_an_ended_parent_is_not_started() -> None:
    """The parent-death signal would never be sent."""
    process, _ = _start_leashed(os.getpid() + 1, "/bin/echo", "up")
    output, _ = process.communicate()

    assert (process.returncode, output) == (1, "")


def test_exec_error_is_written_to_the_pipe(tmp_path: Path) -> None:
    """The pipe gets the errno of exec."""
    invalid_program = tmp_path / "broken"
    invalid_program.write_text("no program")
    invalid_program.chmod(0o755)

    process, error_text = _start_leashed(os.getpid(), str(invalid_program))
    process.communicate()

    assert (process.returncode, int(error_text)) == (1, errno.ENOEXEC)
