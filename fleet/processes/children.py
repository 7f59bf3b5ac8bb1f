"""Start child processes that cannot outlive us: the kernel ends them when the thread that made them ends.

PR_SET_PDEATHSIG is Linux only, and it fires when the creating *thread* ends, so start children from the
main thread. Elsewhere children are ended by `stop` alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with_parent(parent: int, sent: signal.Signals) -> Callable[[], None]:
    def in_child() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(sent))
            # The parent may have died between fork and prctl: then nobody will ever send the signal.
            if os.getppid() != parent:
                os._exit(1)

    return in_child


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
    return subprocess.Popen(
        list(argv),
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT if log is not None else None,
        cwd=cwd,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
        preexec_fn=_die_with_parent(os.getpid(), on_parent_death),  # noqa: PLW1509 - we fork from the main thread
    )


def stop(processes: Iterable[subprocess.Popen[bytes]], *, grace: float = 5.0) -> None:
    """End every process: SIGTERM to all at once, `grace` seconds for each, then SIGKILL.

    A stopped process (SIGSTOP) would never see SIGTERM: it is continued first.
    """
    running = [process for process in processes if process.poll() is None]
    for process in running:
        for sent in (signal.SIGCONT, signal.SIGTERM):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(sent)
    for process in running:
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
