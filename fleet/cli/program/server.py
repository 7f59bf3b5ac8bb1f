"""The commands of the console's own machine, such as serve and user. They run in a process of their own.

This process has no Django: its place is taken by the console's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

_HELP_FLAGS = {"-h", "--help"}
#: Subcommands and options in the help of a command, each with the text beside or below it.
_SUBCOMMAND = re.compile(r"^    ([a-z][a-z-]*)(?:\s+(.*))?$", re.MULTILINE)
_OPTION = re.compile(r"^  (?:-\w, )?(--[a-z][a-z-]*)[^\n]*?(?:\s{2,}(.*))?$", re.MULTILINE)


class _ConsoleCommand(click.Command):
    """A command of which this process knows only the name: shells complete what its help lists."""

    #: Words before its name.
    group: tuple[str, ...] = ()

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        subcommands = [text for text in ctx.params.get("arguments") or () if not text.startswith("-")]
        return [
            CompletionItem(value, help=summary or None)
            for value, summary in _find_completions(
                _read_help([*self.group, self.name or "", *subcommands[:1]])
            )
            if value.startswith(incomplete)
        ]


def _find_completions(help_text: str) -> Iterator[tuple[str, str]]:
    arguments, _, options = help_text.partition("\noptions:")
    yield from _SUBCOMMAND.findall(arguments.partition("\npositional arguments:")[2])
    yield from _OPTION.findall(options)


def _read_help(command: list[str]) -> str:
    """Return the help of a command; empty if there is no such command."""
    argv = [sys.executable, "-m", "dashboards", *command, "--help"]
    # Each summary on one line.
    environment = {**os.environ, "COLUMNS": "1000"}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment).stdout


def _complete_argument(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return ctx.command.shell_complete(ctx, incomplete)


def create_command(name: str, summary: str, *, group: tuple[str, ...] = ()) -> click.Command:
    """Return a command that passes all its arguments to the console's command of that name, or in that group."""

    @click.command(
        name,
        cls=_ConsoleCommand,
        help=summary,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=_complete_argument)
    def run(arguments: tuple[str, ...]) -> None:
        argv = [sys.executable, "-m", "dashboards", *group, name, *arguments]
        if _HELP_FLAGS.intersection(arguments):
            process = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
            click.echo(process.stdout.replace("usage: ", "Usage: ", 1), nl=False)
            sys.exit(process.returncode)
        sys.stdout.flush()
        # Signals and the terminal belong to the program, not to a process that waits for it.
        os.execv(sys.executable, argv)  # noqa: S606

    assert isinstance(run, _ConsoleCommand), "the class of the decorator"
    run.group = group
    return run


demo = create_command("demo", "Run the console and a local test fleet.")
serve = create_command("serve", "Run the console: web server, workers, alerting.")
prepare = create_command("prepare", "Prepare the database for this version.")
doctor = create_command("doctor", "Check this installation and say what to do.")
backup = create_command("backup", "Write an archive of this installation.")
restore = create_command("restore", "Restore an archive of this installation.")
user = create_command("user", "Create users and change their roles.")
token = create_command("token", "Create, list and revoke API tokens.")
