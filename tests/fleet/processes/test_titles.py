"""What `ps` shows of a copy."""

from __future__ import annotations

import subprocess
import sys

from fleet.processes import titles

_SHOWN = """
import os, sys
os.environ.clear()
from fleet.processes import titles
import psutil
titles.show_command_line("worker-of-many-letters", sys.argv[1:])
print(psutil.Process().name(), *psutil.Process().cmdline())
"""


def test_short_command_line_is_padded() -> None:
    """Words stay apart, as execve leaves them."""
    assert titles.command_line_bytes(["a", "bc"], 8, 12) == b"a\0bc\0" + b"\0" * 7


def test_long_command_line_goes_on_where_the_environment_was() -> None:
    """No NUL stands where the arguments ended, or the kernel would stop there."""
    assert titles.command_line_bytes(["abc", "def", "g"], 4, 12) == b"abc def g\0\0\0"


def test_command_line_that_is_too_long_is_cut() -> None:
    """The last byte is a NUL: nobody reads beyond it."""
    assert titles.command_line_bytes(["abcdef", "ghijkl"], 4, 8) == b"abcdef \0"


def test_process_is_shown_as_it_says() -> None:
    """By name and by command line, one longer than its own was."""
    words = [
        "python",
        "-m",
        "celery",
        "worker",
        "--queues",
        "polls",
        *(f"--long-flag-{n}" for n in range(20)),
    ]
    shown = subprocess.run(
        [sys.executable, "-c", _SHOWN, *words], capture_output=True, text=True, check=True
    ).stdout.split()

    assert shown[0].startswith("worker-of-many")
    assert shown[1:] == words
