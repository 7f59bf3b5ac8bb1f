"""Numbers of flags: "nan" and "inf" are floats to Python, and pass every range."""

from __future__ import annotations

import math
from typing import Any

import click
from typing_extensions import override


class Number(click.FloatRange):
    """A range of real numbers."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number
