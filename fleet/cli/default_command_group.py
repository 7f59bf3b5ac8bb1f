"""A group of commands with a command that may be left out: `refloat audit` is `refloat audit list`."""

from __future__ import annotations

from typing import Any

import click
from typing_extensions import override


class DefaultCommandGroup(click.Group):
    """A group that runs its default command when the first argument is an option.

    `default_command`: its name. `runs_without_arguments`: also run the command, not the help, without any argument.
    """

    def __init__(
        self, *args: Any, default_command: str, runs_without_arguments: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._default_command = default_command
        self._runs_without_arguments = runs_without_arguments

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_option = bool(args) and args[0].startswith("-") and args[0] not in ctx.help_option_names
        if is_option or (not args and self._runs_without_arguments):
            args = [self._default_command, *args]
        return super().parse_args(ctx, args)
