"""Auths and channels that end with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.fakes.auths import FakeAuth


@pytest.fixture
async def auths() -> AsyncIterator[Callable[..., Awaitable[FakeAuth]]]:
    """Starts servers."""
    started: list[FakeAuth] = []

    async def start(name: str, *args: Any, **kwargs: Any) -> FakeAuth:
        started.append(await FakeAuth(name, *args, **kwargs).start())
        return started[-1]

    yield start
    for auth in started:
        await auth.stop()
