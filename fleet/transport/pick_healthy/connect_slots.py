"""Turns of the connections that one event loop makes.

When a thousand agents of a process leave a server at once, all their connections together are ready when the last of
them is. A few at a time, in their order, half of them are ready in half the time, for the same work. And what nobody
waits for, the closing of old connections, comes after that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

#: So many connections are made at a time.
_AT_ONCE = 8
#: One that is not connected sooner holds up nobody, seconds: dead servers take for ever. So at least 80 are begun a
#: second.
_HOLD = 0.1
#: And one that is connected has this to tell what it is good for. A machine with more to do than it can takes long, and
#: to begin more at a time would make that longer.
_HOLD_CONNECTED = 1.0
#: And closing waits no longer than this for quiet, seconds.
_QUIET_WITHIN = 5.0


class ConnectSlot:
    """The right to make one connection now. Give it back, or it ends by itself."""

    def __init__(self, on_end: Callable[[ConnectSlot], None]) -> None:
        self._on_end = on_end
        self._over = False
        self._timer = asyncio.get_running_loop().call_later(_HOLD, self.end)

    def extend(self) -> None:
        """It gets on: it may take a while."""
        if not self._over:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(_HOLD_CONNECTED, self.end)

    def end(self) -> None:
        """Let the next one begin; once is enough, more does nothing."""
        if not self._over:
            self._over = True
            self._timer.cancel()
            self._on_end(self)


class ConnectSlots:
    """Of one event loop."""

    def __init__(self) -> None:
        self._active_slots: set[ConnectSlot] = set()
        self._waiters: deque[asyncio.Future[ConnectSlot]] = deque()
        self._quiet_waiters: set[asyncio.Future[None]] = set()

    async def take(self) -> ConnectSlot:
        """Wait for a turn."""
        if len(self._active_slots) < _AT_ONCE and not self._waiters:
            return self._begin()
        waiter: asyncio.Future[ConnectSlot] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                waiter.result().end()
            self._next()
            raise

    def quiet(self) -> asyncio.Future[None]:
        """Is done when no connection is being made, or before long; whoever cannot wait may end it."""
        loop = asyncio.get_running_loop()
        quiet: asyncio.Future[None] = loop.create_future()
        if not self._active_slots and not self._waiters:
            quiet.set_result(None)
            return quiet
        timer = loop.call_later(_QUIET_WITHIN, _end, quiet)
        self._quiet_waiters.add(quiet)
        quiet.add_done_callback(lambda _: timer.cancel())
        quiet.add_done_callback(self._quiet_waiters.discard)
        return quiet

    def _begin(self) -> ConnectSlot:
        slot = ConnectSlot(self._on_slot_end)
        self._active_slots.add(slot)
        return slot

    def _on_slot_end(self, slot: ConnectSlot) -> None:
        self._active_slots.discard(slot)
        self._next()

    def _next(self) -> None:
        while self._waiters and len(self._active_slots) < _AT_ONCE:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(self._begin())
        if not self._active_slots and not self._waiters:
            for quiet in self._quiet_waiters:
                _end(quiet)


def _end(quiet: asyncio.Future[None]) -> None:
    if not quiet.done():
        quiet.set_result(None)


_slots_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, ConnectSlots] = WeakKeyDictionary()


def of_this_loop() -> ConnectSlots:
    """The turns of the loop that runs."""
    loop = asyncio.get_running_loop()
    slots = _slots_by_loop.get(loop)
    if slots is None:
        slots = _slots_by_loop[loop] = ConnectSlots()
    return slots
