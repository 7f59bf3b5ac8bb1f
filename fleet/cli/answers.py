"""How commands answer: a sentence and exit code 2 for what cannot be done, a table or JSON for what can."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import IO, Any

import click
from typing_extensions import override


class Failure(click.ClickException):
    """What the person can mend; the sentence says how."""

    exit_code = 2

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"refloat: {self.format_message()}", file=file or sys.stderr)


def show_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows under headings; a column nobody fills is left out."""
    kept = [n for n in range(len(headings)) if not rows or any(row[n] for row in rows)]
    lines = [[heading.upper() for heading in headings], *rows]
    widths = {n: max(len(line[n]) for line in lines) for n in kept}
    return "\n".join("  ".join(line[n].ljust(widths[n]) for n in kept).rstrip() for line in lines)
