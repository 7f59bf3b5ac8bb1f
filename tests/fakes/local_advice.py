"""Advice of a simulation that has one part only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random

from fleet.nodes.simulation.advice import Move, SimulatedReconnectAdvisor
from fleet.nodes.simulation.fleet import SimulatedFleet


def local_advice(fleet: SimulatedFleet, clock: Callable[[], float] = time.time) -> SimulatedReconnectAdvisor:
    """Its agents move in this process."""

    async def spread(moves: Sequence[Move]) -> None:
        for kind, agent, instance_to_leave, to in moves:
            (fleet.move_to_auth if kind == "auth" else fleet.move)(agent, instance_to_leave, to, clock())

    return SimulatedReconnectAdvisor(fleet, spread, Random(1))
