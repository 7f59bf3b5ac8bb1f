"""Output of commands: a table or JSON for a result, one message and exit code 2 for an error."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import IO, Any

import click
from typing_extensions import override

from fleet.nodes.shared.options import Command, Decorator


class Failure(click.ClickException):
    """An error that the user can fix; the message says how. Exit code 2."""

    exit_code = 2

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"refloat: {self.format_message()}", file=file or sys.stderr)


json_option = click.option("--json", "as_json", is_flag=True, help="Print the API response as JSON.")


def prints_response(format_text: Callable[[Any], str]) -> Decorator:
    """Return a decorator that adds --json and prints the API response that a command returns, as JSON or text."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(*args: Any, as_json: bool, **options: Any) -> None:
            response = command(*args, **options)
            print_json(response) if as_json else click.echo(format_text(response))

        return json_option(run)

    return decorate


def split_pair(text: str, form: str) -> tuple[str, str]:
    """Split `key=value`. Raises Failure that names the expected `form`."""
    key, equals, value = text.partition("=")
    if not equals:
        raise Failure(f"invalid argument {text!r}: expected {form}")
    return key.strip(), value


def print_json(document: Any) -> None:
    """Print a value as JSON, indented on a terminal."""
    click.echo(json.dumps(document, indent=2 if sys.stdout.isatty() else None))


def format_time(text: str) -> str:
    """Return a time of the API to the second, in UTC: `2026-11-28 15:35:02 UTC`."""
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows under headings; leave out columns that are empty in every row."""
    columns = [n for n in range(len(headings)) if not rows or any(row[n] for row in rows)]
    lines = [[heading.upper() for heading in headings], *rows]
    widths = {n: max(len(line[n]) for line in lines) for n in columns}
    return "\n".join("  ".join(line[n].ljust(widths[n]) for n in columns).rstrip() for line in lines)
