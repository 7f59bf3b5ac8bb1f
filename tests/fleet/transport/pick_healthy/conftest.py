"""Auths and channels that end with the test; each test meets them directly, and through a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.fakes.auth_paths import passage_to
from tests.fakes.auths import FakeAuth


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
