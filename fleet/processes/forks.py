"""Run Python programs as forks of this process, which share the modules that it has loaded.

A fork behaves like a separate program: it has its own session, log, environment, command line in `ps` and default
signal handlers, and the kernel stops it when its parent ends. The parent must not have other threads or use gRPC,
which do not survive a fork (https://github.com/grpc/grpc/issues/43055). docs/decisions/0008-copies-of-one-process.md
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from typing import IO

from fleet.processes import children, titles
from fleet.processes.supervisor import Spawn

_PR_SET_PDEATHSIG = 1


def is_possible(argv: Sequence[str]) -> bool:
    """Return whether a program can run as a fork: `python -m MODULE ...` with the same Python, on Linux."""
    return sys.platform == "linux" and len(argv) > 2 and tuple(argv[:2]) == (sys.executable, "-m")


def import_modules(names: Iterable[str]) -> None:
    """Import modules that forks share. Call it before the first fork."""
    for name in names:
        importlib.import_module(name)
    # Garbage would be copied into every fork.
    gc.collect()


def create_spawner(
    name: str,
    *,
    begin: Callable[[Mapping[str, str]], None],
    prepare: Callable[[], object] = lambda: None,
) -> Spawn:
    """Return a function that starts a program as a fork of this process, or executes it where a fork is not safe.

    `prepare` runs in this process before the fork, `begin` first in the fork: it sets every variable of its environment
    again, even unchanged ones, because `titles.show_command_line` overwrites their memory.
    """

    def spawn_program(
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        log: IO[bytes],
        on_parent_death: signal.Signals,
    ) -> children.ChildProcess:
        assert env is not None, "a fork needs its own environment"
        if threading.active_count() > 1 or not is_possible(argv):
            return children.spawn(argv, env=env, log=log, on_parent_death=on_parent_death)
        prepare()
        return spawn(name, argv, log=log, on_parent_death=on_parent_death, begin=lambda: begin(env))

    return spawn_program


class Fork:
    """A fork of this process that runs a program; it has the interface of `subprocess.Popen`."""

    def __init__(self, process: BaseProcess, args: Sequence[str]) -> None:
        self._process = process
        self.args = args

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None, "the fork was started"
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, or -N after signal N; None while the fork runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code if the fork has ended, else None. Reaps the fork."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the fork ends, at most `timeout` seconds. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal to the fork, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def spawn(
    name: str,
    argv: Sequence[str],
    *,
    log: IO[bytes],
    on_parent_death: signal.Signals = signal.SIGKILL,
    begin: Callable[[], None],
) -> Fork:
    """Start the program `argv` (see `is_possible`) as a fork of this process. Raises OSError.

    `begin` runs first in the fork: it sets the environment, and loads again what depends on it.
    """
    assert is_possible(argv), f"{argv[0]} cannot run as a fork"
    parent_pid = os.getpid()

    def run_program() -> None:
        _start_session(parent_pid, on_parent_death)
        _redirect_stdio(log)
        begin()
        titles.show_command_line(name, argv)
        sys.argv = list(argv[2:])
        runpy.run_module(argv[2], run_name="__main__", alter_sys=True)

    process = multiprocessing.get_context("fork").Process(target=run_program, name=name)
    # Exclude existing objects from garbage collection, which would write to each of them and copy its memory page.
    gc.freeze()
    # A signal right after the fork would run this process' handlers in the fork.
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
    return Fork(process, argv)


def _start_session(parent_pid: int, on_parent_death: signal.Signals) -> None:
    """Start a new session with default signal handlers; the kernel stops the fork when `parent_pid` ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(on_parent_death))
    # The parent may have died before prctl; the signal would then never come.
    if os.getppid() != parent_pid:
        os._exit(1)
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN, None):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _redirect_stdio(log: IO[bytes]) -> None:
    """Redirect stdout and stderr to the log, and stdin from /dev/null."""
    devnull = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((devnull, 0), (log.fileno(), 1), (log.fileno(), 2)):
        os.dup2(source, target)
    os.close(devnull)
