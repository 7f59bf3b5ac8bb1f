"""Flags for picking destinations by health (balancer and gateway). docs/reference/destination-health.md, "Picking"."""

from __future__ import annotations

import functools
from typing import Any

import click

from fleet.nodes.shared.flags import DURATION
from fleet.nodes.shared.numbers import FiniteRange
from fleet.nodes.shared.options import Command, combine
from fleet.protocol.destination import picker

_options = combine(
    click.option(
        "--headroom",
        type=FiniteRange(min=1),
        help="Capacity of each destination (backend or target), as a multiple of its load while all are healthy. A "
        "destination at its capacity gets no more traffic while another healthy or degraded one has room. Default: "
        "no limit, so the last healthy destination may get all traffic.",
    ),
    click.option(
        "--degraded-weight",
        type=click.IntRange(1, 100),
        default=100,
        show_default=True,
        help="Weight of a degraded destination, in percent of its normal weight, while it gets traffic.",
    ),
    click.option(
        "--slow-start",
        type=DURATION,
        default="0s",
        show_default=True,
        help="Time in which a destination that became healthy returns to its full weight, starting at 10 %. 0s: at "
        "once.",
    ),
    click.option(
        "--min-healthy",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Minimum number of healthy destinations. Degraded ones also get traffic while fewer are healthy, or "
        "while less than about 71 % of all destinations are healthy.",
    ),
)


def picking_options(command: Command) -> Command:
    """Add the flags for picking; the command receives them as `picking_settings`."""

    @functools.wraps(command)
    def with_picking_settings(
        *args: Any,
        headroom: float | None,
        degraded_weight: int,
        slow_start: float,
        min_healthy: int,
        **kwargs: Any,
    ) -> Any:
        settings = picker.PickerSettings(
            degraded_weight=degraded_weight / 100, slow_start=slow_start, min_healthy=min_healthy
        )
        return command(*args, picking_settings=picker.with_headroom(settings, headroom), **kwargs)

    return _options(with_picking_settings)
