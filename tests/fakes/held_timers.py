"""Timers of a gateway's calls that fire when a test says so, so that a slow machine fires none too early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fleet.nodes.gateway.server import Gateway
from tests.fakes.waiting import eventually


class HeldTimers:
    """The timers that calls of a gateway have set, in the order in which they set them."""

    def __init__(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hold every timer that a call of this gateway sets from now on."""
        self._timers: list[tuple[asyncio.Handle, Callable[[float], None], float]] = []
        monkeypatch.setattr(gateway.listener, "call_later", self._add)

    def _add(self, seconds: float, callback: Callable[[float], None], argument: float) -> asyncio.Handle:
        handle = asyncio.Handle(callback, [argument], asyncio.get_running_loop())
        self._timers.append((handle, callback, argument))
        return handle

    @property
    def count(self) -> int:
        """Number of timers that have neither fired nor been cancelled."""
        self._timers = [timer for timer in self._timers if not timer[0].cancelled()]
        return len(self._timers)

    async def fire(self, count: int) -> None:
        """Wait until calls have set this number of timers, and call back for each."""
        await eventually(lambda: self.count == count)
        due_timers, self._timers = self._timers, []
        for _, callback, argument in due_timers:
            callback(argument)
