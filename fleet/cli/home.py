"""The flags --home (directory of this installation's state) and --cluster."""

from __future__ import annotations

from pathlib import Path

import click

import fleet
from fleet.nodes.shared.name_options import CLUSTER_NAME

#: The same default as REFLOAT_HOME has in the console's settings.
_DEFAULT_HOME = Path(fleet.__file__).resolve().parents[1] / "var"


home_option = click.option(
    "--home",
    envvar="REFLOAT_HOME",
    type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
    default=_DEFAULT_HOME,
    help="Directory of Refloat's state. [env: REFLOAT_HOME; default: var/ of the checkout]",
)

cluster_option = click.option(
    "--cluster",
    type=CLUSTER_NAME,
    default="default",
    show_default=True,
    help="Name of the cluster.",
)
