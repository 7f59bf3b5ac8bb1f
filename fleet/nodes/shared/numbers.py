"""Option type for finite numbers: click's ranges accept "nan" and "inf"."""

from __future__ import annotations

import math
from typing import Any

import click
from typing_extensions import override


class FiniteRange(click.FloatRange):
    """A range of finite numbers."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number
