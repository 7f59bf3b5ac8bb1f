"""The command tree and its help texts."""

from __future__ import annotations

import socket
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from fleet.cli.main import main
from tests.fleet.cli.program.test_server import is_of_console


def list_commands(group: click.Group, *above: str) -> list[tuple[str, ...]]:
    """Return the paths of all commands of a group, without those of the console: test_server has them."""
    context = click.Context(group)
    paths: list[tuple[str, ...]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if is_of_console(command):
            continue
        paths.append((*above, name))
        if isinstance(command, click.Group):
            paths += list_commands(command, *above, name)
    return paths


@pytest.mark.parametrize("path", list_commands(main), ids=" ".join)
def test_help_of_every_command(path: tuple[str, ...]) -> None:
    """One sentence at least, and the flags."""
    process = CliRunner().invoke(main, [*path, "--help"])
    assert process.exit_code == 0, process.output
    assert process.output.startswith("Usage: ")


def test_help_lists_each_command_with_its_own_summary() -> None:
    """The help has the summaries without the commands, so that it does not import them: they are compared here."""
    context = click.Context(main, terminal_width=250, max_content_width=250)
    lines = main.get_help(context).splitlines()

    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert [" ".join(line.split()) for line in lines if line.startswith(f"  {name} ")] == [
            f"{name} {command.get_short_help_str(limit=200)}"
        ]


def test_completion_of_a_command_has_its_summary() -> None:
    """By the beginning of its name; options only after a dash."""
    completions = main.shell_complete(click.Context(main), "silen")
    assert [(completion.value, completion.help) for completion in completions] == [
        ("silence", "Silence incidents for a period of time; list and end silences.")
    ]
    assert [completion.value for completion in main.shell_complete(click.Context(main), "--v")] == [
        "--version"
    ]


def test_error_of_a_program_is_one_line() -> None:
    """A port in use: gRPC's core, which writes to the file descriptor, writes nothing beside our sentence."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        process = subprocess.run(
            [sys.executable, "-m", "fleet.cli", "tunnel", "serve", "--listen", address],
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith(f"refloat: cannot listen on {address}")
    assert process.stderr.count("\n") == 1, process.stderr


def test_unknown_command_is_code_2() -> None:
    """A typing mistake."""
    assert CliRunner().invoke(main, ["sink"]).exit_code == 2
