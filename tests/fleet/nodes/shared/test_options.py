"""Option types that use a parse function."""

from __future__ import annotations

import click
import pytest

from fleet.nodes.shared.options import ParsedOption, combine

NUMBER = ParsedOption("number", int)


def test_text_is_parsed_and_parsed_value_is_kept() -> None:
    """A default may already be a parsed value."""
    assert NUMBER.convert("7", None, None) == 7
    assert NUMBER.convert(7, None, None) == 7


def test_invalid_text_is_a_usage_error() -> None:
    """The error has the message of the parse function."""
    with pytest.raises(click.BadParameter, match="invalid literal"):
        NUMBER.convert("seven", None, None)


def test_combined_options_keep_their_order_in_the_help() -> None:
    """The first option is the first one of the help."""
    command = click.command()(combine(click.option("--first"), click.option("--second"))(lambda **_: None))
    assert [parameter.opts for parameter in command.params] == [["--first"], ["--second"]]
