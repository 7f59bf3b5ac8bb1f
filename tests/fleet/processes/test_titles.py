"""The command line that `ps` shows for a forked copy."""

from __future__ import annotations

import subprocess
import sys

from fleet.processes import titles

_PROGRAM = """
import os, sys
os.environ.clear()
from fleet.processes import titles
import psutil
titles.show_command_line("worker-of-many-letters", sys.argv[1:])
print(psutil.Process().name(), *psutil.Process().cmdline())
"""


def test_short_command_line_is_padded_with_zero_bytes() -> None:
    """Arguments stay separated as execve separates them."""
    assert titles.encode_command_line(["a", "bc"], 8, 12) == b"a\0bc\0" + b"\0" * 7


def test_long_command_line_uses_the_space_of_the_environment() -> None:
    """There is no zero byte at the old end of the arguments, where the kernel would stop."""
    assert titles.encode_command_line(["abc", "def", "g"], 4, 12) == b"abc def g\0\0\0"


def test_too_long_command_line_is_shortened() -> None:
    """The last byte is zero, so that readers stop there."""
    assert titles.encode_command_line(["abcdef", "ghijkl"], 4, 8) == b"abcdef \0"


def test_process_shows_its_new_name_and_command_line() -> None:
    """The new command line is longer than the original one."""
    arguments = [
        "python",
        "-m",
        "celery",
        "worker",
        "--queues",
        "polls",
        *(f"--long-flag-{n}" for n in range(20)),
    ]
    output = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments], capture_output=True, text=True, check=True
    ).stdout.split()

    assert output[0].startswith("worker-of-many")
    assert output[1:] == arguments
