"""Start child processes that cannot outlive us: the kernel ends them when the thread that made them ends.

PR_SET_PDEATHSIG is Linux only, and it fires when the creating *thread* ends, so start children from the
main thread. Elsewhere children are ended by `stop` alone.
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

_LEASH = Path(__file__).with_name("exec_program.py")


class ChildProcess(Protocol):
    """A child that runs or has ended: `subprocess.Popen`, or a copy of us (`forks.Fork`)."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def returncode(self) -> int | Any:
        """How it ended, -N by signal N; None while nobody has seen it end."""

    def poll(self) -> int | None:
        """Look whether it has ended; reap it if so."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""

    def send_signal(self, sig: int, /) -> None:
        """Send it a signal, unless it has ended."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    log: IO[bytes] | int | None = None,
    cwd: str | None = None,
    on_parent_death: signal.Signals = signal.SIGTERM,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `argv` in a session of its own, so that Ctrl-C reaches us alone and we end it in order.

    Raises OSError when the program cannot be started.
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
    # -I -S: nothing of the environment's Python, and a quick start.
    leash = [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), str(int(on_parent_death)), str(write_end)]
    with os.fdopen(read_end, "rb") as pipe:
        try:
            process = start([*leash, program, *argv[1:]], (*pass_fds, write_end))
        finally:
            os.close(write_end)
        trouble = pipe.read()
    if trouble:
        process.wait()
        raise OSError(int(trouble), os.strerror(int(trouble)), argv[0])
    return process


def stop(processes: Iterable[ChildProcess], *, grace: float = 5.0) -> None:
    """End every process: SIGTERM to all at once, `grace` seconds for each, then SIGKILL.

    A stopped process (SIGSTOP) would never see SIGTERM: it is continued first.
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
