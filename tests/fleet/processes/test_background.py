"""Tasks that nobody awaits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fleet.processes import background
from tests.fakes.loop_faults import record_loop_faults
from tests.fakes.waiting import eventually


class FaultError(Exception):
    """A fault of the task itself."""


async def _fail() -> None:
    raise FaultError("out of order")


async def _answer() -> int:
    return 42


@pytest.fixture
async def reports() -> list[dict[str, Any]]:
    """What goes to the loop's exception handler."""
    return record_loop_faults()


async def test_fault_is_reported_while_the_task_is_kept(reports: list[dict[str, Any]]) -> None:
    """The report has the name of the task and its exception, although a reference to the task is left."""
    kept = background.start(_fail(), name="watcher")

    await eventually(lambda: len(reports) == 1)

    assert kept.done()
    assert reports[0]["message"] == "background task 'watcher' failed"
    assert isinstance(reports[0]["exception"], FaultError)


async def test_end_without_a_fault_is_not_reported(reports: list[dict[str, Any]]) -> None:
    """Neither a result nor a cancellation is a fault."""
    answering = background.start(_answer(), name="answer")
    waiting = background.start(asyncio.Event().wait(), name="wait")

    assert await answering == 42
    waiting.cancel()
    await asyncio.wait([waiting])

    assert reports == []


async def test_stop_waits_until_tasks_have_ended() -> None:
    """What a task does at its end is done then; no tasks are no error."""
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("work")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)

    await background.stop([task])
    await background.stop([])

    assert task.cancelled()
    assert ended == ["work"]


async def test_wait_for_ends_with_the_event_or_the_time() -> None:
    """Whichever comes first; an event that is set costs no time."""
    event = asyncio.Event()
    await background.wait_for(event, 0.001)
    assert not event.is_set()

    event.set()
    await background.wait_for(event, None)
