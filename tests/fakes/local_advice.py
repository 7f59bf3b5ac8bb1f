"""Advice of a simulation that has one part only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random

from fleet.nodes.simulation.advice import Move, SimulatedReconnectAdvisor
from fleet.nodes.simulation.fleet import SimulatedFleet


def local_advice(fleet: SimulatedFleet, clock: Callable[[], float] = time.time) -> SimulatedReconnectAdvisor:
    """Its agents move in this process."""

    async def send_moves(moves: Sequence[Move]) -> None:
        for kind, agent, instance_to_leave, instance_to_join in moves:
            (fleet.move_to_auth if kind == "auth" else fleet.move_tunnel)(
                agent, instance_to_leave, instance_to_join, clock()
            )

    return SimulatedReconnectAdvisor(fleet, send_moves, Random(1))
