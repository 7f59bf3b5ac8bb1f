"""Set the command line that `ps` and `top` show for a fork. Linux only.

Like setproctitle(3) of other systems: proc(5) reads the command line from the process' memory, where execve(2) put it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

_PR_SET_NAME = 15
#: Fields of /proc/self/stat after the program name: start and end of the arguments in memory, and end of the
#: environment, which follows them.
_ARGUMENTS, _ARGUMENTS_END, _ENVIRONMENT_END = 45, 46, 48


def show_command_line(name: str, argv: Sequence[str]) -> None:
    """Show this process as `argv`, and as `name` where only 15 bytes fit.

    This overwrites the memory of the original environment: set every variable again before.
    """
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15])
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, arguments_end, end = (int(fields[n]) for n in (_ARGUMENTS, _ARGUMENTS_END, _ENVIRONMENT_END))
    # A kernel that hides addresses reports 0.
    if 0 < begin < end:
        ctypes.memmove(begin, encode_command_line(argv, arguments_end - begin, end - begin), end - begin)


def encode_command_line(argv: Sequence[str], arguments_size: int, total_size: int) -> bytes:
    """Return `total_size` bytes that the kernel reads as this command line, `arguments_size` of them for arguments.

    A longer command line must not have a NUL at that end: the kernel then reads on until the first NUL.
    """
    command_line = b"".join(argument.encode(errors="surrogateescape") + b"\0" for argument in argv)
    if len(command_line) > arguments_size:
        command_line = command_line[:-1].replace(b"\0", b" ")
    return command_line[: total_size - 1].ljust(total_size, b"\0")
