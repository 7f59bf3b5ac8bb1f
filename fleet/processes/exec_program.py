"""Replace this process by another program, which the kernel stops when its parent ends.

Usage: `exec_program.py PARENT SIGNAL PIPE PROGRAM ARG...`.

This is a program and not a `preexec_fn`, because with `preexec_fn` Python forks the parent with its locks; gRPC, if the
parent uses it, then starts its threads in the fork and aborts when their files are closed for exec
(https://github.com/grpc/grpc/issues/43055). Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def exec_program(parent_pid: int, sig: int, error_pipe: int, argv: list[str]) -> None:
    """Execute `argv`, a path and its arguments; the program gets signal `sig` when its parent thread ends.

    The pipe `error_pipe` is closed on success; on failure, the errno is written to it first.
    """
    os.set_inheritable(error_pipe, False)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, sig)
    # The parent may have died before prctl; the signal would then never come.
    if os.getppid() != parent_pid:
        sys.exit(1)
    # Python ignores SIGPIPE, and the program would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(error_pipe, str(error.errno).encode())
        sys.exit(1)


if __name__ == "__main__":
    exec_program(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
