"""A click group that imports a command only when it is used, so that `freeze` does not load grpc."""

from __future__ import annotations

import importlib
from typing import Any

import click
from typing_extensions import override


class LazyGroup(click.Group):
    """A group with `lazy` commands by name: `{"simulate": "fleet.cli.local.simulate:simulate"}`."""

    def __init__(self, *args: Any, lazy_commands: dict[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy_commands = lazy_commands or {}

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy_commands})

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy_commands:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy_commands[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command
