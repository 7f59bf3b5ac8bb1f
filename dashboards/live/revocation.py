"""When an open socket must end: its right to stay ended, or nobody can confirm it. docs/live.md, "Revocation"."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from django.db import Error

from fleet.processes import background

logger = logging.getLogger(__name__)

#: Close code of a socket whose right to stay cannot be confirmed ("try again later"): the browser connects again.
TRY_AGAIN_LATER = 1013

#: Returns the close code of a socket that may not stay, None for one that may. Raises `Error` of the database.
CloseCodeCheck = Callable[[], Awaitable[int | None]]


@dataclass(frozen=True, slots=True)
class RecheckSettings:
    """How often the right to stay is confirmed, seconds."""

    #: Between two looks.
    interval: float
    #: Until the next attempt after one that failed; each attempt gets at least as long.
    retry: float
    #: Since the last confirmation: a socket that is older than that is closed.
    limit: float


async def wait_for_close_code(find_close_code: CloseCodeCheck, recheck: asyncio.Event, settings: RecheckSettings, confirmed_at: float) -> int:
    """Look until the socket may not stay any more, and return the close code. `confirmed_at` is a time of the loop.

    1. Wait for `recheck`, or for the interval.
    2. Look. An answer counts from when its look began: what ended meanwhile may have been missed.
    3. A database that fails, or does not answer, is asked again after `retry`, until `limit` is over.
    """
    loop = asyncio.get_running_loop()
    wait, is_failing = settings.interval, False
    while True:
        await background.wait_for(recheck, wait)
        recheck.clear()
        started_at = loop.time()
        try:
            async with asyncio.timeout_at(max(confirmed_at + settings.limit, started_at + settings.retry)):
                code = await find_close_code()
        except (Error, TimeoutError) as error:
            remaining = confirmed_at + settings.limit - loop.time()
            if remaining <= 0:
                logger.warning("a socket is closed: its right to stay open cannot be confirmed: %r", error)
                return TRY_AGAIN_LATER
            if not is_failing:
                logger.warning("the right of a socket to stay open cannot be confirmed yet: %r", error)
            wait, is_failing = min(settings.retry, remaining), True
            continue
        if code is not None:
            return code
        confirmed_at, wait, is_failing = started_at, settings.interval, False
