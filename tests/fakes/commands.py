"""The `refloat` command line, run in the test's own process: for tests of what a command does, not how it starts."""

from __future__ import annotations

from dataclasses import dataclass

from click.testing import CliRunner

from fleet.cli.main import main


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """The exit code and output of a command."""

    code: int
    stdout: str
    stderr: str


def refloat(*args: str, **environment: str) -> CommandOutcome:
    """Run `refloat ARGS`, with `environment` added to the process's environment."""
    outcome = CliRunner(env=environment).invoke(main, args)
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return CommandOutcome(outcome.exit_code, outcome.stdout, outcome.stderr)
