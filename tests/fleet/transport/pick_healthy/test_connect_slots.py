"""Turns of an event loop's connections: a few at a time, in order, and none is held up for long."""

from __future__ import annotations

import asyncio

import pytest

from fleet.transport.pick_healthy import connect_slots
from fleet.transport.pick_healthy.connect_slots import ConnectSlot, ConnectSlots
from tests.fakes.waiting import eventually


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> ConnectSlots:
    """Two at a time, which may take as long as they like."""
    monkeypatch.setattr(connect_slots, "_AT_ONCE", 2)
    monkeypatch.setattr(connect_slots, "_HOLD", 600.0)
    return ConnectSlots()


async def taken(some: ConnectSlots, count: int) -> tuple[list[ConnectSlot], list[asyncio.Task[ConnectSlot]]]:
    """Ask for turns: those that were given at once, and those that wait, in their order."""
    asked = [asyncio.create_task(some.take()) for _ in range(count)]
    await asyncio.sleep(0)
    return [one.result() for one in asked if one.done()], [one for one in asked if not one.done()]


async def test_a_few_at_a_time_in_their_order(few: ConnectSlots) -> None:
    """Each that ends lets the next begin; ending twice lets in no other."""
    running, waiting = await taken(few, 4)
    assert len(running) == 2
    running[0].end()
    running[0].end()
    third = await waiting[0]
    assert not waiting[1].done()
    third.end()
    assert await waiting[1]


async def test_who_waits_no_more_is_passed_over(few: ConnectSlots) -> None:
    """One that was given up, before its turn or at that moment, takes nobody's place."""
    running, waiting = await taken(few, 5)
    waiting[0].cancel()
    await asyncio.wait([waiting[0]])
    running[0].end()
    waiting[1].cancel()  # its turn has come, and it was not told yet
    await asyncio.wait([waiting[1]])
    assert await waiting[2]


async def test_what_takes_long_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections to a server that does not answer: others begin without an end of those."""
    monkeypatch.setattr(connect_slots, "_AT_ONCE", 1)
    monkeypatch.setattr(connect_slots, "_HOLD", 0.01)
    some = ConnectSlots()
    _, waiting = await taken(some, 10)
    await eventually(lambda: all(one.done() for one in waiting))
    await asyncio.gather(*waiting)


async def test_connected_one_may_take_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turn does not end as that of one that is not connected does, but it does not last for ever."""
    monkeypatch.setattr(connect_slots, "_AT_ONCE", 1)
    monkeypatch.setattr(connect_slots, "_HOLD", 600.0)
    some = ConnectSlots()
    first = await some.take()
    (_, (waiting,)) = await taken(some, 1)
    monkeypatch.setattr(connect_slots, "_HOLD_CONNECTED", 0.05)
    first.extend()
    first.extend()
    await waiting
    first.extend()  # it is over: nothing more comes of it


async def test_quiet_is_when_nothing_is_made(few: ConnectSlots) -> None:
    """At once when there is nothing; else when the last one that waited has ended."""
    await few.quiet()
    running, waiting = await taken(few, 3)
    quiet = few.quiet()
    for turn in running:
        turn.end()
    last = await waiting[0]
    assert not quiet.done()
    last.end()
    await quiet


async def test_quiet_is_not_waited_for_for_long(few: ConnectSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that connects all the time does not keep old connections for ever."""
    monkeypatch.setattr(connect_slots, "_QUIET_WITHIN", 0.01)
    await taken(few, 2)
    await few.quiet()


async def test_one_for_each_loop() -> None:
    """Channels of a loop share them; those of another thread's loop have their own."""
    assert connect_slots.of_this_loop() is connect_slots.of_this_loop()

    async def elsewhere() -> ConnectSlots:
        return connect_slots.of_this_loop()

    assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) is not connect_slots.of_this_loop()
