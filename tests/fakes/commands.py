"""Our command lines, run in the test's own process: for tests of what a command does, not of how it starts."""

from __future__ import annotations

from dataclasses import dataclass

from click.testing import CliRunner

from fleet.cli.main import main


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


def refloat(*words: str, **environment: str) -> Result:
    """Run `refloat WORDS`; the environment is ours with `environment` over it."""
    done = CliRunner(env=environment).invoke(main, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Result(done.exit_code, done.stdout, done.stderr)
