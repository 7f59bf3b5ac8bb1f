"""The command's tree: every command is found, and explains itself."""

from __future__ import annotations

import socket
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from fleet.cli.main import main


def commands(group: click.Group, *above: str) -> list[tuple[str, ...]]:
    """Every command below, as words."""
    context = click.Context(group)
    found: list[tuple[str, ...]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append((*above, name))
        if isinstance(command, click.Group):
            found += commands(command, *above, name)
    return found


@pytest.mark.parametrize("words", commands(main), ids=" ".join)
def test_help_of_every_command(words: tuple[str, ...]) -> None:
    """One sentence at least, and the flags."""
    done = CliRunner().invoke(main, [*words, "--help"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("Usage: ")


def test_error_of_a_program_is_one_line() -> None:
    """A port in use: gRPC's core, which writes to the file descriptor, writes nothing beside our sentence."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-m", "fleet.cli", "tunnel", "serve", "--listen", address],
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"refloat: cannot listen on {address}")
    assert done.stderr.count("\n") == 1, done.stderr


def test_unknown_command_is_code_2() -> None:
    """A typing mistake."""
    assert CliRunner().invoke(main, ["sink"]).exit_code == 2
