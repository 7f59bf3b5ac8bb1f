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


class Turn:
    """The right to make one connection now. Give it back, or it ends by itself."""

    def __init__(self, ended: Callable[[Turn], None]) -> None:
        self._ended = ended
        self._over = False
        self._timer = asyncio.get_running_loop().call_later(_HOLD, self.end)

    def connected(self) -> None:
        """It gets on: it may take a while."""
        if not self._over:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(_HOLD_CONNECTED, self.end)

    def end(self) -> None:
        """Let the next one begin; once is enough, more does nothing."""
        if not self._over:
            self._over = True
            self._timer.cancel()
            self._ended(self)


class Turns:
    """Of one event loop."""

    def __init__(self) -> None:
        self._running: set[Turn] = set()
        self._waiting: deque[asyncio.Future[Turn]] = deque()
        self._at_leisure: set[asyncio.Future[None]] = set()

    async def take(self) -> Turn:
        """Wait for a turn."""
        if len(self._running) < _AT_ONCE and not self._waiting:
            return self._begin()
        mine: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            return await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                mine.result().end()
            self._next()
            raise

    def quiet(self) -> asyncio.Future[None]:
        """Is done when no connection is being made, or before long; whoever cannot wait may end it."""
        loop = asyncio.get_running_loop()
        quiet: asyncio.Future[None] = loop.create_future()
        if not self._running and not self._waiting:
            quiet.set_result(None)
            return quiet
        timer = loop.call_later(_QUIET_WITHIN, _end, quiet)
        self._at_leisure.add(quiet)
        quiet.add_done_callback(lambda _: timer.cancel())
        quiet.add_done_callback(self._at_leisure.discard)
        return quiet

    def _begin(self) -> Turn:
        turn = Turn(self._ended)
        self._running.add(turn)
        return turn

    def _ended(self, turn: Turn) -> None:
        self._running.discard(turn)
        self._next()

    def _next(self) -> None:
        while self._waiting and len(self._running) < _AT_ONCE:
            next_one = self._waiting.popleft()
            if not next_one.done():
                next_one.set_result(self._begin())
        if not self._running and not self._waiting:
            for quiet in self._at_leisure:
                _end(quiet)


def _end(quiet: asyncio.Future[None]) -> None:
    if not quiet.done():
        quiet.set_result(None)


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def of_this_loop() -> Turns:
    """The turns of the loop that runs."""
    loop = asyncio.get_running_loop()
    found = _turns.get(loop)
    if found is None:
        found = _turns[loop] = Turns()
    return found
