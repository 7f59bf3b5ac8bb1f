"""Programs of the console by their flags, to compare what deploy/ starts with what `refloat serve` starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet.management import programs


def flags_of_program(argv: Sequence[str]) -> dict[str, str]:
    """Return what follows `python -m`, without addresses and paths, which differ by place."""
    free = {"--host", "--port", "--schedule"}
    args = [arg for piece in list(argv)[list(argv).index("-m") :] for arg in piece.split("=", 1)]
    flags: dict[str, str] = {}
    for at, arg in enumerate(args):
        if arg.startswith("-"):
            value = args[at + 1] if at + 1 < len(args) and not args[at + 1].startswith("-") else ""
            flags[arg] = "" if arg in free else value
    return flags


def flags_of_console() -> dict[str, dict[str, str]]:
    """Return the flags of each program that `refloat serve` starts, by name: `web`, `worker-polls`, …"""
    console = programs.create_console_programs(Path("home"), "127.0.0.1", 8000)
    return {program.name: flags_of_program(program.argv) for program in console}
