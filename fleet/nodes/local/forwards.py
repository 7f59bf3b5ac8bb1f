"""A named TCP forward that passes, holds or cuts connections, to inject faults into a fleet."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.shared import addresses
from fleet.nodes.shared.pump import ConnectionPair, Tasks
from fleet.transport.listen_sockets import stop_listening

_DIAL_TIMEOUT = 5.0
_BACKLOG = 1024


class Forward:
    """A listening port whose connections go to one destination."""

    def __init__(self, name: str, listen: tuple[str, int], target_address: tuple[str, int] | None) -> None:
        self.name = name
        self.listen = listen
        self.target_address = target_address
        self.mode = ForwardMode.PASS
        self.pairs: set[ConnectionPair] = set()
        self.accepted_count = 0
        self._server: asyncio.Server | None = None
        self._port_reservation: socket.socket | None = None
        self._tasks = Tasks()
        #: Set while new connections are forwarded to the destination.
        self._can_pass = asyncio.Event()

    async def start(self) -> None:
        """Start listening; `listen` then contains the actual port. Raises OSError."""
        self._port_reservation = _reserve_port(self.listen)
        if self._port_reservation is not None:
            self.listen = (self.listen[0], self._port_reservation.getsockname()[1])
        await self._serve()
        self._apply_mode()

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        await self._refuse()
        self._tasks.cancel()
        for pair in list(self.pairs):
            pair.close()
        if self._port_reservation is not None:
            self._port_reservation.close()

    async def change(
        self, *, mode: ForwardMode | None = None, target_address: tuple[str, int] | None = None
    ) -> None:
        """Set the mode, or the destination of new connections. Raises OSError if the port cannot be opened again."""
        if target_address is not None:
            self.target_address = target_address
        if mode is not None and mode is not self.mode:
            if mode is ForwardMode.CUT:
                await self._refuse()
                for pair in list(self.pairs):
                    pair.reset()
            elif self.mode is ForwardMode.CUT:
                await self._serve()
            self.mode = mode
        self._apply_mode()

    def describe(self) -> dict[str, Any]:
        """Return the forward as JSON of the control API."""
        return {
            "name": self.name,
            "listen": addresses.join(*self.listen),
            "target_address": None if self.target_address is None else addresses.join(*self.target_address),
            "mode": self.mode.value,
            "connections": len(self.pairs),
            "accepted": self.accepted_count,
        }

    def _apply_mode(self) -> None:
        if self.mode is ForwardMode.PASS and self.target_address is not None:
            self._can_pass.set()
        else:
            self._can_pass.clear()
        for pair in self.pairs:
            pair.set_held(self.mode is ForwardMode.HOLD)

    async def _serve(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ConnectionPair(self._on_accepted, self.pairs.discard).near,
            *self.listen,
            backlog=_BACKLOG,
            reuse_address=True,
        )
        self.listen = (self.listen[0], self._server.sockets[0].getsockname()[1])

    async def _refuse(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await stop_listening(server)

    def _on_accepted(self, pair: ConnectionPair) -> None:
        self.pairs.add(pair)
        self.accepted_count += 1
        if self.mode is ForwardMode.CUT:
            # The system accepted the connection before the port was closed.
            pair.reset()
            return
        self._tasks.start(self._connect(pair))

    async def _connect(self, pair: ConnectionPair) -> None:
        await self._can_pass.wait()
        assert self.target_address is not None, "passing requires a destination"
        try:
            await pair.dial(*self.target_address, within=_DIAL_TIMEOUT)
        except OSError:
            pair.reset()  # the destination is down: a direct client would see a reset, too


def _reserve_port(listen: tuple[str, int]) -> socket.socket | None:
    """Reserve the port while nothing listens on it; Linux lets a listener bind beside a bound socket.

    Otherwise the system could assign the port of a cut forward to an outgoing connection.
    """
    if sys.platform != "linux":
        return None
    family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
    reservation = socket.socket(family, socket.SOCK_STREAM)
    try:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(listen)
    except OSError:
        reservation.close()
        raise
    return reservation
