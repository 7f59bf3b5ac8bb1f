"""Tables and failures."""

from __future__ import annotations

import click
from click.testing import CliRunner

from fleet.cli.output import Failure, format_table, prints_response


def test_table_aligns_and_leaves_out_empty_columns() -> None:
    """A column without a value takes no room."""
    assert (
        format_table(("name", "faults", "pid"), [("auth-1", "", "5"), ("a", "", "17")])
        == "NAME    PID\nauth-1  5\na       17"
    )


def test_table_without_rows_has_its_headings() -> None:
    """An empty table prints its headings."""
    assert format_table(("name", "pid"), []) == "NAME  PID"


def test_failure_is_one_line_on_stderr_and_code_2() -> None:
    """As for every command."""

    @click.command()
    def command() -> None:
        raise Failure("no such thing: do that")

    outcome = CliRunner().invoke(command)
    assert outcome.exit_code == 2
    assert outcome.stderr == "refloat: no such thing: do that\n"
    assert outcome.stdout == ""


def test_response_is_printed_as_text_or_json() -> None:
    """With --json it is the answer itself; its text is not made then."""

    @click.command()
    @prints_response(lambda answer: f"{answer['count']} agents")
    def command() -> dict[str, int]:
        return {"count": 3}

    assert CliRunner().invoke(command).stdout == "3 agents\n"
    assert CliRunner().invoke(command, ["--json"]).stdout == '{"count": 3}\n'
