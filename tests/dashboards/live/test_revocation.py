"""The permission checks of open sockets, without a socket: short times, no database."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from django.db import InterfaceError, OperationalError

from dashboards.live import consumers
from dashboards.live.revocation import TRY_AGAIN_LATER, RecheckSettings, wait_for_close_code

QUICK = RecheckSettings(interval=0.01, retry_interval=0.01, timeout=60.0)
SHORT = RecheckSettings(interval=0.01, retry_interval=0.01, timeout=0.2)
ERRORS = (OperationalError("no answer"), InterfaceError("closed"))


class Answers:
    """A look that gives one answer after the other; exceptions are raised."""

    def __init__(self, answers: Iterator[int | Exception | None]) -> None:
        self._answers = answers
        self.count = 0

    async def look(self) -> int | None:
        """Give the next answer."""
        self.count += 1
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _watch(answers: Answers, pace: RecheckSettings) -> int:
    async with asyncio.timeout(60):
        return await wait_for_close_code(
            answers.look, asyncio.Event(), pace, asyncio.get_running_loop().time()
        )


async def test_socket_that_may_stay_is_looked_at_again() -> None:
    """The first refusal ends the watch, with its close code."""
    answers = Answers(iter((None, None, 4401)))

    assert await _watch(answers, QUICK) == 4401
    assert answers.count == 3


async def test_failing_database_is_retried() -> None:
    """Errors of every kind; the refusal that comes afterwards is not missed."""
    answers = Answers(iter((*ERRORS, *ERRORS, None, *ERRORS, 4403)))

    assert await _watch(answers, QUICK) == 4403
    assert answers.count == 8


async def test_database_that_fails_for_long_closes_the_socket() -> None:
    """When the permission cannot be checked after several attempts, the socket is closed."""
    answers = Answers(itertools.cycle(ERRORS))

    assert await _watch(answers, SHORT) == TRY_AGAIN_LATER
    assert answers.count > 1


async def test_database_that_never_answers_closes_the_socket() -> None:
    """A look that hangs is given up at the limit."""

    async def look() -> int | None:
        await asyncio.Event().wait()
        return None

    async with asyncio.timeout(60):
        code = await wait_for_close_code(look, asyncio.Event(), SHORT, asyncio.get_running_loop().time())

    assert code == TRY_AGAIN_LATER


async def test_recheck_runs_the_check_early() -> None:
    """A sign-out triggers the check immediately."""
    recheck = asyncio.Event()
    recheck.set()
    slow = RecheckSettings(interval=3600.0, retry_interval=1.0, timeout=9.0)
    answers = Answers(iter((4401,)))

    async with asyncio.timeout(60):
        code = await wait_for_close_code(answers.look, recheck, slow, asyncio.get_running_loop().time())

    assert code == 4401


async def test_error_of_ours_ends_the_watch() -> None:
    """It is no answer of the database, so no later look would end otherwise: whoever watches closes the socket."""
    answers = Answers(iter((ZeroDivisionError(),)))

    with pytest.raises(ZeroDivisionError):
        await _watch(answers, QUICK)


def test_open_socket_ends_within_10_s_of_its_session() -> None:
    """docs/reference/live.md promises it, and that one failed look does not delay it further."""
    assert consumers.RECHECK_INTERVAL + consumers.RECHECK_RETRY_INTERVAL < 10.0
    assert consumers.RECHECK_TIMEOUT < 10.0
