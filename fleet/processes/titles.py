"""What `ps` and `top` show of a process that began as a copy of another: its own command line. Linux only.

As setproctitle(3) of other systems: proc(5) reads the command line out of the process' memory, where execve(2) put it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

_PR_SET_NAME = 15
#: Fields of proc(5) stat, counted from after the program's name: where the arguments begin and end, and where the
#: environment ends, which comes after them.
_ARGUMENTS, _ARGUMENTS_END, _ENVIRONMENT_END = 45, 46, 48


def show_command_line(name: str, argv: Sequence[str]) -> None:
    """Have this process shown as `argv`, and as `name` where there is room for 15 letters.

    It writes over the memory that held the environment at the start: call it after every variable was set anew.
    """
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15])
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, arguments_end, end = (int(fields[n]) for n in (_ARGUMENTS, _ARGUMENTS_END, _ENVIRONMENT_END))
    # A kernel that hides addresses says 0.
    if 0 < begin < end:
        ctypes.memmove(begin, command_line_bytes(argv, arguments_end - begin, end - begin), end - begin)


def command_line_bytes(argv: Sequence[str], arguments: int, room: int) -> bytes:
    """Return the bytes that the kernel reads as this command line: `room` of them, the first `arguments` for arguments.

    A line that is longer than those must not have a NUL where they end: then the kernel reads on, until the first one.
    """
    command_line = b"".join(argument.encode(errors="surrogateescape") + b"\0" for argument in argv)
    if len(command_line) > arguments:
        command_line = command_line[:-1].replace(b"\0", b" ")
    return command_line[: room - 1].ljust(room, b"\0")
