"""The flags --home (directory of this installation's state) and --cluster."""

from __future__ import annotations

from pathlib import Path

import click

from fleet.installation import default_home
from fleet.nodes.shared.name_options import CLUSTER_NAME

home_option = click.option(
    "--home",
    envvar="REFLOAT_HOME",
    type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
    default=default_home,
    help="Directory of Refloat's state. [env: REFLOAT_HOME; default: var/ of a checkout, else "
    "~/.local/share/refloat]",
)

cluster_option = click.option(
    "--cluster",
    type=CLUSTER_NAME,
    default="default",
    show_default=True,
    help="Name of the cluster.",
)
