"""Auths, forwards and channels that end with the test.

Each test meets auths directly, and through a proxy; and channels of both kinds, unless its file says otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fleet.nodes.local.forwards import Forward
from fleet.protocol.recovery.pick_healthy import BalancerSettings
from fleet.transport.pick_healthy.channel_factory import open_blocking_channel, open_channel
from tests.fakes.auth_paths import passage_to
from tests.fakes.auths import FakeAuth
from tests.fakes.in_threads import InThreads

#: Attempts follow each other at once: which server a shuffle leads to is chance.
_FAST = BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02)


@pytest.fixture(params=["direct", "proxy"])
async def auths(request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Awaitable[FakeAuth]]]:
    """Starts servers; clients find them at `reached_at`."""
    started: list[FakeAuth] = []
    async with AsyncExitStack() as stack:

        async def start(name: str, *args: Any, **kwargs: Any) -> FakeAuth:
            auth = await FakeAuth(name, *args, **kwargs).start()
            started.append(auth)
            if request.param == "proxy":
                auth.passage = await stack.enter_async_context(passage_to(lambda: auth.address))
            return auth

        yield start
    for auth in started:
        await auth.stop()


@pytest.fixture
async def forwards() -> AsyncIterator[Callable[[FakeAuth], Awaitable[Forward]]]:
    """Forwards to servers: they count connections, hold and cut them."""
    started: list[Forward] = []

    async def start(auth: FakeAuth) -> Forward:
        started.append(Forward(auth.name, ("127.0.0.1", 0), auth.reached_at))
        await started[-1].start()
        return started[-1]

    yield start
    for forward in started:
        await forward.stop()


@pytest.fixture(params=["aio", "blocking"])
async def channels(request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Any]]:
    """Opens channels."""
    opened: list[Any] = []

    def open_to(*where: FakeAuth | Forward, settings: BalancerSettings = _FAST, **more: Any) -> Any:
        at = [one.reached_at if isinstance(one, FakeAuth) else one.listen for one in where]
        if request.param == "aio":
            opened.append(open_channel(at, settings=settings, **more))
        else:
            opened.append(InThreads(open_blocking_channel(at, settings=settings, **more)))
        return opened[-1]

    yield open_to
    for channel in opened:
        await channel.close()
