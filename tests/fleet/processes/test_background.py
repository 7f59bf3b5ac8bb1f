"""Background tasks that no code awaits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fleet.processes import background
from tests.fakes.loop_faults import record_loop_faults
from tests.fakes.waiting import eventually


class FaultError(Exception):
    """An error of the task itself."""


async def _fail() -> None:
    raise FaultError("out of order")


async def _return_number() -> int:
    return 42


@pytest.fixture
async def reports() -> list[dict[str, Any]]:
    """Return the list of errors that the loop's exception handler gets."""
    return record_loop_faults()


async def test_failed_task_is_reported_while_it_is_referenced(reports: list[dict[str, Any]]) -> None:
    """The report has the task's name and exception."""
    task = background.start(_fail(), name="watcher")

    await eventually(lambda: len(reports) == 1)

    assert task.done()
    assert reports[0]["message"] == "background task 'watcher' failed"
    assert isinstance(reports[0]["exception"], FaultError)


async def test_finished_and_cancelled_tasks_are_not_reported(reports: list[dict[str, Any]]) -> None:
    """Neither a return value nor a cancellation is an error."""
    finished_task = background.start(_return_number(), name="answer")
    cancelled_task = background.start(asyncio.Event().wait(), name="wait")

    assert await finished_task == 42
    cancelled_task.cancel()
    await asyncio.wait([cancelled_task])

    assert reports == []


async def test_stop_waits_until_tasks_have_ended() -> None:
    """The final block of a task has run when `stop` returns; an empty list is accepted."""
    finished_names: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            finished_names.append("work")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)

    await background.stop([task])
    await background.stop([])

    assert task.cancelled()
    assert finished_names == ["work"]


async def test_wait_for_ends_with_the_event_or_the_timeout() -> None:
    """An event that is set needs no time."""
    event = asyncio.Event()
    await background.wait_for(event, 0.001)
    assert not event.is_set()

    event.set()
    await background.wait_for(event, None)
