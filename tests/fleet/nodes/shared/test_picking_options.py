"""Flags of picking become its settings."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from fleet.nodes.shared.picking_options import picking_options
from fleet.protocol.destination import picker


def settings_of(*flags: str) -> picker.Settings:
    """What a command with these flags is given."""
    given: list[picker.Settings] = []

    @click.command()
    @picking_options
    @click.option("--other", default="")
    def command(other: str, picking_settings: picker.Settings) -> None:
        assert other == "mine"
        given.append(picking_settings)

    result = CliRunner().invoke(command, ["--other", "mine", *flags])
    assert result.exit_code == 0, result.output
    return given[0]


def test_no_flag_is_no_guard() -> None:
    """Nobody said what destinations can take: the last one that is well may take all."""
    assert settings_of() == picker.with_headroom(picker.DEFAULTS, None)


def test_each_flag_is_a_setting() -> None:
    """All at once."""
    flags = ("--headroom", "2.5", "--degraded-weight", "25", "--slow-start", "1m30s", "--min-healthy", "3")

    assert settings_of(*flags) == picker.Settings(
        guard=2.5, degraded_weight=0.25, slow_start=90.0, min_healthy=3
    )


@pytest.mark.parametrize(
    "flags",
    [
        ("--headroom", "0.5"),
        ("--degraded-weight", "0"),
        ("--degraded-weight", "101"),
        ("--slow-start", "-1s"),
        ("--slow-start", "soon"),
        ("--min-healthy", "0"),
    ],
)
def test_flag_that_cannot_be_obeyed_is_refused(flags: tuple[str, str]) -> None:
    """With its name, and exit code 2."""

    @click.command()
    @picking_options
    def command(picking_settings: picker.Settings) -> None:
        raise AssertionError("unreachable")

    result = CliRunner().invoke(command, list(flags))

    assert result.exit_code == 2
    assert flags[0] in result.output
