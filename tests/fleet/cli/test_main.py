"""The command's tree: every command is found, and explains itself."""

from __future__ import annotations

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


def test_unknown_command_is_code_2() -> None:
    """A typing mistake."""
    assert CliRunner().invoke(main, ["sink"]).exit_code == 2
