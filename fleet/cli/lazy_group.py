"""A click group that imports a command only when it is used, so that `freeze` does not load grpc."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem
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


class SectionedGroup(LazyGroup):
    """A lazy group with sections of commands: `{"Alerts": {"rules": ("fleet.cli.alerts.rules:rules", summary)}}`.

    Its help and the completion of its commands show the summaries, so that neither imports all commands.
    """

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]] | None = None, **kwargs: Any
    ) -> None:
        self._sections = {
            title: {name: summary for name, (_, summary) in commands.items()}
            for title, commands in (sections or {}).items()
        }
        targets = {
            name: target for commands in (sections or {}).values() for name, (target, _) in commands.items()
        }
        super().__init__(*args, lazy_commands=targets, **kwargs)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, summaries in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(list(summaries.items()))

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=summary)
            for summaries in self._sections.values()
            for name, summary in summaries.items()
            if name.startswith(incomplete)
        ]
        # The method of click.Group would import the commands.
        return commands + click.Command.shell_complete(self, ctx, incomplete)
