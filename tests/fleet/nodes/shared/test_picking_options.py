"""Flags of the backend picker become its settings."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from fleet.nodes.shared.picking_options import picking_options
from fleet.protocol.destination import picker


def parse_settings(*flags: str) -> picker.PickerSettings:
    """Return the settings that a command with these flags gets."""
    received_settings: list[picker.PickerSettings] = []

    @click.command()
    @picking_options
    @click.option("--label", default="")
    def command(label: str, picking_settings: picker.PickerSettings) -> None:
        assert label == "x"
        received_settings.append(picking_settings)

    invocation = CliRunner().invoke(command, ["--label", "x", *flags])
    assert invocation.exit_code == 0, invocation.output
    return received_settings[0]


def test_no_flags_mean_no_guard() -> None:
    """Without headroom the last healthy destination may take all calls."""
    assert parse_settings() == picker.with_headroom(picker.DEFAULTS, None)


def test_each_flag_sets_its_setting() -> None:
    """Numbers, percentages and durations are converted."""
    flags = ("--headroom", "2.5", "--degraded-weight", "25", "--slow-start", "1m30s", "--min-healthy", "3")

    assert parse_settings(*flags) == picker.PickerSettings(
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
def test_invalid_flag_is_refused(flags: tuple[str, str]) -> None:
    """The error names the flag, and the exit code is 2."""

    @click.command()
    @picking_options
    def command(picking_settings: picker.PickerSettings) -> None:
        raise AssertionError("unreachable")

    invocation = CliRunner().invoke(command, list(flags))

    assert invocation.exit_code == 2
    assert flags[0] in invocation.output
