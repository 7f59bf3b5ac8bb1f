"""Start child processes that cannot outlive this process: the kernel stops them when their parent thread ends.

PR_SET_PDEATHSIG is Linux only, and it fires when the creating *thread* ends, so start children from the
main thread. On other systems only `stop` ends children.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

_EXEC_PROGRAM = Path(__file__).with_name("exec_program.py")


class ChildProcess(Protocol):
    """A child that runs or has ended: `subprocess.Popen` or `forks.Fork`."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def returncode(self) -> int | Any:
        """The exit code, or -N after signal N; None until `poll` or `wait` has seen the end."""

    def poll(self) -> int | None:
        """Return the exit code if the child has ended, else None. Reaps the child."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the child ends, at most `timeout` seconds. Raises subprocess.TimeoutExpired."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal to the child, unless it has ended."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    log: IO[bytes] | int | None = None,
    cwd: str | None = None,
    on_parent_death: signal.Signals = signal.SIGTERM,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `argv` in its own session, so that Ctrl-C reaches only this process, which then stops the child.

    Raises OSError if the program cannot be started.
    """
    program = shutil.which(argv[0], path=None if env is None else env.get("PATH", os.defpath))
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])

    def start(argv: list[str], fds: Sequence[int]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT if log is not None else None,
            cwd=cwd,
            pass_fds=tuple(fds),
            start_new_session=True,
        )

    if sys.platform != "linux":
        return start([program, *argv[1:]], pass_fds)
    read_end, write_end = os.pipe()
    # -I -S: ignore PYTHON* variables and site-packages; this also starts faster.
    wrapper_argv = [
        sys.executable,
        "-I",
        "-S",
        str(_EXEC_PROGRAM),
        str(os.getpid()),
        str(int(on_parent_death)),
        str(write_end),
    ]
    with os.fdopen(read_end, "rb") as pipe:
        try:
            process = start([*wrapper_argv, program, *argv[1:]], (*pass_fds, write_end))
        finally:
            os.close(write_end)
        error_number = pipe.read()
    if error_number:
        process.wait()
        raise OSError(int(error_number), os.strerror(int(error_number)), argv[0])
    return process


def stop(processes: Iterable[ChildProcess], *, grace: float = 5.0) -> None:
    """Stop all processes: SIGTERM to all at once, then SIGKILL to those that still run after `grace` seconds.

    SIGCONT is sent first, because a frozen process (SIGSTOP) does not handle SIGTERM.
    """
    live_processes = [process for process in processes if process.poll() is None]
    for process in live_processes:
        for sig in (signal.SIGCONT, signal.SIGTERM):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(sig)
    for process in live_processes:
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
