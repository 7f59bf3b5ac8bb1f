from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from django.core.management import load_command_class

from fleet.cli.main import main
from fleet.cli.program import server
from tests.meta.house import ROOT


def _run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli", *arguments],
        cwd=home,
        env={**os.environ, "REFLOAT_HOME": str(home / "state"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def is_of_console(command: click.Command) -> bool:
    """Return whether a command runs in a process of its own, with Django."""
    return command.callback is not None and command.callback.__module__ == server.__name__


def list_console_commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the commands of a group that run in a process of their own."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if is_of_console(command):
            yield (*above, name)
        elif isinstance(command, click.Group):
            yield from list_console_commands(command, *above, name)


@pytest.mark.parametrize("path", [*list_console_commands(main)], ids=" ".join)
def test_help_shows_the_options_of_the_command(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without those of every Django command. Read in this process; some run as programs below."""
    name, *arguments = path
    parser = load_command_class("fleet", name).create_parser("refloat", name)
    with pytest.raises(SystemExit) as exit_info:
        parser.parse_args([*arguments, "--help"])
    assert exit_info.value.code == 0
    help_text = capsys.readouterr().out
    assert help_text.startswith(f"usage: refloat {' '.join(path)} [-h]")
    assert "--settings" not in help_text


# The slow commands, those of an installation, and the one whose settings may be wrong read their settings each in
# their own way.
@pytest.mark.parametrize("name", ["demo", "backup", "doctor"])
def test_help_of_a_program(tmp_path: Path, name: str) -> None:
    """Under the name that was typed."""
    process = _run(tmp_path, name, "--help")
    assert process.stdout.startswith(f"Usage: refloat {name} [-h]"), process
    assert "Traceback" not in process.stdout


def test_arguments_and_exit_code_are_those_of_the_command(tmp_path: Path) -> None:
    """A new database, a user in it, and errors with code 2."""
    assert _run(tmp_path, "prepare").returncode == 0
    creation = _run(tmp_path, "user", "create", "ada", "--role", "operator")
    assert creation.returncode == 0, creation
    assert "ada" in _run(tmp_path, "user", "list").stdout
    refusal = _run(tmp_path, "serve", "--port", "many")
    assert refusal.returncode == 2
    assert "refloat serve: error: argument --port: invalid int value: 'many'" in refusal.stderr


def test_cluster_commands_are_those_of_the_console(tmp_path: Path) -> None:
    """In the group that also tests connections without a console."""
    process = _run(tmp_path, "cluster", "add", "--help")
    assert process.stdout.startswith("Usage: refloat cluster add [-h]"), process
    assert "--identity FILE" in process.stdout
    assert "prepare` first" in _run(tmp_path, "cluster", "list").stderr
    commands = _run(tmp_path, "cluster", "--help").stdout
    assert all(f"  {name} " in commands for name in ("add", "edit", "test")), commands
