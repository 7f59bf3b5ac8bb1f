"""The commands of the console's own machine, such as serve and user. They run in a process of their own.

This process has no Django: its place is taken by the console's.
"""

from __future__ import annotations

import os
import subprocess
import sys

import click

_HELP_FLAGS = {"-h", "--help"}


def _create_command(name: str, summary: str) -> click.Command:
    """Return a command that passes all its arguments to the console's command of that name."""

    @click.command(
        name,
        help=summary,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def run(arguments: tuple[str, ...]) -> None:
        argv = [sys.executable, "-m", "dashboards", name, *arguments]
        if _HELP_FLAGS.intersection(arguments):
            process = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
            click.echo(process.stdout.replace("usage: ", "Usage: ", 1), nl=False)
            sys.exit(process.returncode)
        sys.stdout.flush()
        # Signals and the terminal belong to the program, not to a process that waits for it.
        os.execv(sys.executable, argv)  # noqa: S606

    return run


demo = _create_command("demo", "Run the console and a local test fleet.")
serve = _create_command("serve", "Run the console: web server, workers, alerting.")
prepare = _create_command("prepare", "Prepare the database for this version.")
doctor = _create_command("doctor", "Check this installation and say what to do.")
backup = _create_command("backup", "Write an archive of this installation.")
restore = _create_command("restore", "Restore an archive of this installation.")
user = _create_command("user", "Create users and change their roles.")
token = _create_command("token", "Create, list and revoke API tokens.")
