"""Types of options that a function reads."""

from __future__ import annotations

import click
import pytest

from fleet.nodes.shared.options import ParsedOption, combine

NUMBER = ParsedOption("number", int)


def test_text_is_read() -> None:
    """Text becomes what the function returns; a value that was read before, or is a default, stays."""
    assert NUMBER.convert("7", None, None) == 7
    assert NUMBER.convert(7, None, None) == 7


def test_text_that_cannot_be_read() -> None:
    """The sentence of the function is the usage error."""
    with pytest.raises(click.BadParameter, match="invalid literal"):
        NUMBER.convert("seven", None, None)


def test_combined_options_stand_in_the_order_of_the_help() -> None:
    """The first one that is given is the first one of the help."""
    command = click.command()(combine(click.option("--first"), click.option("--second"))(lambda **_: None))
    assert [parameter.opts for parameter in command.params] == [["--first"], ["--second"]]
