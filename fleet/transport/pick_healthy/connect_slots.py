"""Limit on the connections that one event loop makes at the same time.

When a thousand agents of one process leave a server at once, connecting all of them at once makes all as slow as the
last one. A few at a time, in order, half of them are ready in half the time, for the same work. Closing old
connections, for which nothing waits, comes last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

#: Maximum number of connections being made.
_MOST_ACTIVE_SLOTS = 8
#: Seconds after which a connection that is not connected gives up its slot, because dead servers never answer. So at
#: least 80 attempts start per second.
_SLOT_TIMEOUT = 0.1
#: Seconds after which a connected one gives up its slot while its health is unknown. An overloaded machine takes long,
#: and more attempts at once would make it slower.
_CONNECTED_SLOT_TIMEOUT = 1.0
#: Maximum seconds that closing waits for the end of all attempts.
_QUIET_WITHIN = 5.0


class ConnectSlot:
    """A slot for making one connection. End it, or it expires."""

    def __init__(self, on_end: Callable[[ConnectSlot], None]) -> None:
        self._on_end = on_end
        self._is_over = False
        self._timer = asyncio.get_running_loop().call_later(_SLOT_TIMEOUT, self.end)

    def extend(self) -> None:
        """Extend the slot of a connection that is connected."""
        if not self._is_over:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(_CONNECTED_SLOT_TIMEOUT, self.end)

    def end(self) -> None:
        """Free the slot; a second call does nothing."""
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            self._on_end(self)


class ConnectSlots:
    """The slots of one event loop."""

    def __init__(self) -> None:
        self._active_slots: set[ConnectSlot] = set()
        self._waiters: deque[asyncio.Future[ConnectSlot]] = deque()
        self._quiet_waiters: set[asyncio.Future[None]] = set()

    async def take(self) -> ConnectSlot:
        """Wait for a slot."""
        if len(self._active_slots) < _MOST_ACTIVE_SLOTS and not self._waiters:
            return self._start_slot()
        waiter: asyncio.Future[ConnectSlot] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                waiter.result().end()
            self._grant_next()
            raise

    def quiet_future(self) -> asyncio.Future[None]:
        """Return a future that is done when no connection is being made, or after 5 s; it may be ended early."""
        loop = asyncio.get_running_loop()
        quiet: asyncio.Future[None] = loop.create_future()
        if not self._active_slots and not self._waiters:
            quiet.set_result(None)
            return quiet
        timer = loop.call_later(_QUIET_WITHIN, _set_done, quiet)
        self._quiet_waiters.add(quiet)
        quiet.add_done_callback(lambda _: timer.cancel())
        quiet.add_done_callback(self._quiet_waiters.discard)
        return quiet

    def _start_slot(self) -> ConnectSlot:
        slot = ConnectSlot(self._on_slot_end)
        self._active_slots.add(slot)
        return slot

    def _on_slot_end(self, slot: ConnectSlot) -> None:
        self._active_slots.discard(slot)
        self._grant_next()

    def _grant_next(self) -> None:
        while self._waiters and len(self._active_slots) < _MOST_ACTIVE_SLOTS:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(self._start_slot())
        if not self._active_slots and not self._waiters:
            for quiet in self._quiet_waiters:
                _set_done(quiet)


def _set_done(quiet: asyncio.Future[None]) -> None:
    if not quiet.done():
        quiet.set_result(None)


_slots_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, ConnectSlots] = WeakKeyDictionary()


def of_this_loop() -> ConnectSlots:
    """Return the slots of the running loop."""
    loop = asyncio.get_running_loop()
    slots = _slots_by_loop.get(loop)
    if slots is None:
        slots = _slots_by_loop[loop] = ConnectSlots()
    return slots
