"""Where this installation keeps its state, and the flag that says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

import fleet
from fleet.nodes.shared.cluster_names import CLUSTER_NAME

F = TypeVar("F", bound=Callable[..., Any])

#: Beside the packages, as the console's settings have it.
_DEFAULT = Path(fleet.__file__).resolve().parents[1] / "var"


def home_option(command: F) -> F:
    """Add --home."""
    return click.option(
        "--home",
        envvar="REFLOAT_HOME",
        type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
        default=_DEFAULT,
        help="Where state is kept. [env: REFLOAT_HOME; default: var/ of the checkout]",
    )(command)


def cluster_option(command: F) -> F:
    """Add --cluster."""
    return click.option(
        "--cluster",
        type=CLUSTER_NAME,
        default="default",
        show_default=True,
        help="Which fleet, by the name of its cluster.",
    )(command)
