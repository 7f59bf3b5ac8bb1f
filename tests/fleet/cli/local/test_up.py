"""What `refloat fleet up` says when the fleet is up."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.core import ParameterSource

from fleet.cli.local import up


@pytest.mark.parametrize(
    ("source", "cluster", "flags"),
    [
        (ParameterSource.DEFAULT, "default", ""),
        (ParameterSource.ENVIRONMENT, "default", ""),
        (ParameterSource.COMMANDLINE, "default", " --home '/srv/my fleet'"),
        (ParameterSource.COMMANDLINE, "eu", " --home '/srv/my fleet' --cluster eu"),
    ],
)
def test_hints_find_the_fleet(source: ParameterSource, cluster: str, flags: str) -> None:
    """The commands that it suggests have the flags that lead to this fleet."""
    with click.Context(click.Command("up")) as context:
        context.set_parameter_source("home", source)

        assert up._find_place_flags(Path("/srv/my fleet"), cluster) == flags
