"""Tables and failures."""

from __future__ import annotations

import click
from click.testing import CliRunner

from fleet.cli.answers import Failure, table


def test_table_aligns_and_leaves_out_what_nobody_fills() -> None:
    """A column without a value takes no room."""
    assert (
        table(("name", "faults", "pid"), [("auth-1", "", "5"), ("a", "", "17")])
        == "NAME    PID\nauth-1  5\na       17"
    )


def test_table_without_rows_has_its_headings() -> None:
    """An empty list looks like a list."""
    assert table(("name", "pid"), []) == "NAME  PID"


def test_failure_is_one_line_on_stderr_and_code_2() -> None:
    """As the brief of every command has it."""

    @click.command()
    def command() -> None:
        raise Failure("no such thing: do that")

    done = CliRunner().invoke(command)
    assert done.exit_code == 2
    assert done.stderr == "refloat: no such thing: do that\n"
    assert done.stdout == ""
