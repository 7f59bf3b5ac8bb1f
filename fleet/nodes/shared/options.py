"""Additions to click: option types with a parse function, and groups of options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import click
from typing_extensions import override

T = TypeVar("T")

#: A function that click makes a command of, and a decorator that adds an option to it.
Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


class ParsedOption(click.ParamType[T], Generic[T]):
    """An option type with a parse function. A ValueError of the function is a usage error."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    @override
    def convert(self, value: str | T, param: click.Parameter | None, ctx: click.Context | None) -> T:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def combine(*options: Decorator) -> Decorator:
    """Return a decorator that adds options, in the order in which `--help` lists them."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
