"""Become another program that the kernel ends when our parent ends.

Usage: `exec_program.py PARENT SIGNAL PIPE PROGRAM ARG...`.

A program of its own and not `preexec_fn`: with that one Python forks a copy of the parent, threads and locks as they
stand, and gRPC, if the parent uses it, starts its threads in the copy and aborts when their files are closed for exec
(https://github.com/grpc/grpc/issues/43055). Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def exec_program(parent: int, sig: int, error_pipe: int, argv: list[str]) -> None:
    """Be `argv`, a path and its arguments, and get signal `sent` when the thread of `parent` that made us ends.

    The pipe `told` is closed when that is done; what was written to it before is the errno that was in the way.
    """
    os.set_inheritable(error_pipe, False)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, sig)
    # The parent may have died before prctl: then nobody will ever send the signal.
    if os.getppid() != parent:
        sys.exit(1)
    # Python ignores it, and what is ignored stays so in the program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(error_pipe, str(error.errno).encode())
        sys.exit(1)


if __name__ == "__main__":
    exec_program(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
