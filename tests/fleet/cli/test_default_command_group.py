"""Arguments with and without the name of the default command."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from fleet.cli.default_command_group import DefaultCommandGroup


def _group_with(*, runs_without_arguments: bool) -> click.Group:
    group = DefaultCommandGroup(
        "items", default_command="list", runs_without_arguments=runs_without_arguments
    )

    @group.command("list")
    @click.option("--limit", default=0)
    def list_items(limit: int) -> None:
        click.echo(f"list {limit}")

    return group


@pytest.mark.parametrize(
    ("arguments", "first_words"),
    [(["list"], "list 0"), (["--limit", "3"], "list 3"), (["--help"], "Usage: items"), ([], "list 0")],
)
def test_options_belong_to_the_default_command(arguments: list[str], first_words: str) -> None:
    invocation = CliRunner().invoke(_group_with(runs_without_arguments=True), arguments)
    assert invocation.output.startswith(first_words)


def test_group_without_arguments_shows_its_help() -> None:
    """Unless it runs its default command then."""
    invocation = CliRunner().invoke(_group_with(runs_without_arguments=False), [])
    assert invocation.output.startswith("Usage: items")
