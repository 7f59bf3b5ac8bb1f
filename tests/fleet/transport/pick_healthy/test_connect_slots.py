"""Connect slots of an event loop: a few connections at a time, in order, and none is delayed for long."""

from __future__ import annotations

import asyncio

import pytest

from fleet.transport.pick_healthy import connect_slots
from fleet.transport.pick_healthy.connect_slots import ConnectSlot, ConnectSlots
from tests.fakes.waiting import eventually


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> ConnectSlots:
    """Two slots without a time limit."""
    monkeypatch.setattr(connect_slots, "_MOST_ACTIVE_SLOTS", 2)
    monkeypatch.setattr(connect_slots, "_SLOT_TIMEOUT", 600.0)
    return ConnectSlots()


async def request_slots(
    slots: ConnectSlots, count: int
) -> tuple[list[ConnectSlot], list[asyncio.Task[ConnectSlot]]]:
    """Request slots; return those taken at once and the waiting tasks, in their order."""
    tasks = [asyncio.create_task(slots.take()) for _ in range(count)]
    await asyncio.sleep(0)
    return [task.result() for task in tasks if task.done()], [task for task in tasks if not task.done()]


async def test_slots_are_given_in_order(slots: ConnectSlots) -> None:
    """Each ended slot lets the next begin; a second end has no effect."""
    active_slots, waiting_tasks = await request_slots(slots, 4)
    assert len(active_slots) == 2
    active_slots[0].end()
    active_slots[0].end()
    third_slot = await waiting_tasks[0]
    assert not waiting_tasks[1].done()
    third_slot.end()
    assert await waiting_tasks[1]


async def test_cancelled_requests_are_skipped(slots: ConnectSlots) -> None:
    """A request cancelled before its turn or at that moment takes no slot."""
    active_slots, waiting_tasks = await request_slots(slots, 5)
    waiting_tasks[0].cancel()
    await asyncio.wait([waiting_tasks[0]])
    active_slots[0].end()
    waiting_tasks[1].cancel()  # its slot was given, but the task has not resumed
    await asyncio.wait([waiting_tasks[1]])
    assert await waiting_tasks[2]


async def test_slow_connections_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a server does not respond, other connections begin without waiting for an end."""
    monkeypatch.setattr(connect_slots, "_MOST_ACTIVE_SLOTS", 1)
    monkeypatch.setattr(connect_slots, "_SLOT_TIMEOUT", 0.01)
    slots = ConnectSlots()
    _, waiting_tasks = await request_slots(slots, 10)
    await eventually(lambda: all(task.done() for task in waiting_tasks))
    await asyncio.gather(*waiting_tasks)


async def test_connected_slot_is_held_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is held longer than an unconnected one, but not for ever."""
    monkeypatch.setattr(connect_slots, "_MOST_ACTIVE_SLOTS", 1)
    monkeypatch.setattr(connect_slots, "_SLOT_TIMEOUT", 600.0)
    slots = ConnectSlots()
    first_slot = await slots.take()
    (_, (waiting_task,)) = await request_slots(slots, 1)
    monkeypatch.setattr(connect_slots, "_CONNECTED_SLOT_TIMEOUT", 0.05)
    first_slot.extend()
    first_slot.extend()
    await waiting_task
    first_slot.extend()  # no effect: the slot has ended


async def test_quiet_waits_for_the_last_connection(slots: ConnectSlots) -> None:
    """Without connections it returns at once."""
    await slots.quiet_future()
    active_slots, waiting_tasks = await request_slots(slots, 3)
    quiet_future = slots.quiet_future()
    for slot in active_slots:
        slot.end()
    last_slot = await waiting_tasks[0]
    assert not quiet_future.done()
    last_slot.end()
    await quiet_future


async def test_quiet_has_a_time_limit(slots: ConnectSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that always connects does not keep old connections for ever."""
    monkeypatch.setattr(connect_slots, "_QUIET_WITHIN", 0.01)
    await request_slots(slots, 2)
    await slots.quiet_future()


async def test_each_loop_has_its_slots() -> None:
    """Channels of a loop share them; those of another thread's loop have their own."""
    assert connect_slots.of_this_loop() is connect_slots.of_this_loop()

    async def slots_of_another_loop() -> ConnectSlots:
        return connect_slots.of_this_loop()

    assert (
        await asyncio.to_thread(lambda: asyncio.run(slots_of_another_loop()))
        is not connect_slots.of_this_loop()
    )
