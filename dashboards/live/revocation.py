"""When an open socket must end: its access ended, or cannot be checked. docs/reference/live.md, "Revocation"."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from django.db import Error

from fleet.processes import background

logger = logging.getLogger(__name__)

#: Close code of a socket whose access cannot be checked ("try again later"): the browser connects again.
TRY_AGAIN_LATER = 1013

#: An access check. Returns a close code, or None if the socket may stay open. Raises `Error` of the database.
CloseCodeCheck = Callable[[], Awaitable[int | None]]


@dataclass(frozen=True, slots=True)
class RecheckSettings:
    """Timing of access checks, seconds."""

    #: Between two checks.
    interval: float
    #: Until the next attempt after a failed one, and minimum timeout of an attempt.
    retry_interval: float
    #: Maximum time since the last successful check; after that, the socket is closed.
    timeout: float


async def wait_for_close_code(
    find_close_code: CloseCodeCheck,
    recheck_event: asyncio.Event,
    settings: RecheckSettings,
    confirmed_at: float,
) -> int:
    """Check the access of a socket until it ends, and return the close code. `confirmed_at` is a time of the loop.

    1. Wait for `recheck_event`, or for the interval.
    2. Check. A result counts from the start of the check, because it may miss later changes.
    3. If the database fails or does not respond, check again after `retry_interval`, until `timeout` is over.
    """
    loop = asyncio.get_running_loop()
    wait_seconds, is_failing = settings.interval, False
    while True:
        await background.wait_for(recheck_event, wait_seconds)
        recheck_event.clear()
        started_at = loop.time()
        try:
            async with asyncio.timeout_at(
                max(confirmed_at + settings.timeout, started_at + settings.retry_interval)
            ):
                code = await find_close_code()
        except (Error, TimeoutError) as error:
            remaining_seconds = confirmed_at + settings.timeout - loop.time()
            if remaining_seconds <= 0:
                logger.warning("socket closed, its access cannot be checked: %r", error)
                return TRY_AGAIN_LATER
            if not is_failing:
                logger.warning("the access of a socket cannot be checked yet: %r", error)
            wait_seconds, is_failing = min(settings.retry_interval, remaining_seconds), True
            continue
        if code is not None:
            return code
        confirmed_at, wait_seconds, is_failing = started_at, settings.interval, False
