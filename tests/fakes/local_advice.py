"""Advice of a simulation that has one part only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random

from fleet.nodes.simulation.advice import Move, SimulatedAdvice
from fleet.nodes.simulation.fleet import SimulatedFleet


def local_advice(fleet: SimulatedFleet, clock: Callable[[], float] = time.time) -> SimulatedAdvice:
    """Its agents move in this process."""

    async def spread(moves: Sequence[Move]) -> None:
        for kind, agent, leaves, to in moves:
            (fleet.move_to_auth if kind == "auth" else fleet.move)(agent, leaves, to, clock())

    return SimulatedAdvice(fleet, spread, Random(1))
