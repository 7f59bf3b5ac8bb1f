"""Names of clusters and regions, as flags give them: they become folders, keys and labels."""

from __future__ import annotations

import re

import click
from typing_extensions import override

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,62}[A-Za-z0-9])?")


class ClusterName(click.ParamType[str]):
    """A flag that takes the name of a cluster, or of what else is named so."""

    name = "name"

    def __init__(self, of: str = "cluster") -> None:
        self._of = of

    @override
    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if _NAME.fullmatch(value) is None:
            self.fail(
                f"{value!r} is no name of a {self._of}: write up to 64 letters, digits, dots, dashes and underscores",
                param,
                ctx,
            )
        return value
