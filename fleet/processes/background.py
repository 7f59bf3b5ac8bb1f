"""Background tasks of asyncio whose exceptions are reported at once.

asyncio reports the exception of a task that nobody awaits only when the last reference to the task is dropped. An
object that keeps its task in a field holds that reference, so the report would come late, or never.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def start(work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Start a task whose exception is logged by the loop's exception handler. The caller keeps the task."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_report)
    return task


async def stop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they end."""
    ending_tasks = list(tasks)
    for task in ending_tasks:
        task.cancel()
    if ending_tasks:
        await asyncio.wait(ending_tasks)


async def wait_for(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, at most `seconds`; None waits without a limit."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler(
            {"message": f"background task {task.get_name()!r} failed", "exception": error, "task": task}
        )
