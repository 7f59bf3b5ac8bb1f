"""Flags of who picks destinations by health: the balancer, the gateway. docs/destination-health.md, "Picking"."""

from __future__ import annotations

import functools
from typing import Any

import click

from fleet.nodes.shared.flags import DURATION
from fleet.nodes.shared.numbers import Number
from fleet.nodes.shared.options import Command, combine
from fleet.protocol.destination import picker

_options = combine(
    click.option(
        "--headroom",
        type=Number(min=1),
        help="How many times what it gets when all are well each can take: none gets more while others are left, "
        "sick ones in the end. Default: nobody knows, and the last one that is well may take all.",
    ),
    click.option(
        "--degraded-weight",
        type=click.IntRange(1, 100),
        default=100,
        show_default=True,
        help="Percent of its weight that a Degraded one has.",
    ),
    click.option(
        "--slow-start",
        type=DURATION,
        default="0s",
        show_default=True,
        help="One that became Healthy comes to its whole weight within this, from a tenth of it on; 0s: at once.",
    ),
    click.option(
        "--min-healthy",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Degraded ones take a part when fewer than this are Healthy, however much of the capacity those are.",
    ),
)


def picking_options(command: Command) -> Command:
    """Add the flags of picking; the command is given what they say as `picking_settings`."""

    @functools.wraps(command)
    def with_picking_settings(
        *args: Any,
        headroom: float | None,
        degraded_weight: int,
        slow_start: float,
        min_healthy: int,
        **kwargs: Any,
    ) -> Any:
        settings = picker.Settings(
            degraded_weight=degraded_weight / 100, slow_start=slow_start, min_healthy=min_healthy
        )
        return command(*args, picking_settings=picker.with_headroom(settings, headroom), **kwargs)

    return _options(with_picking_settings)
