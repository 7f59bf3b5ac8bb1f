"""Fake instances, and connections to them in the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from fleet.sources.channels import Connections
from tests.fakes.instances import FakeAuth, FakeProxy


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    """Closed at the end."""
    made = Connections()
    yield made
    await made.close()


@pytest.fixture
def auth() -> Iterator[FakeAuth]:
    """An auth that lists nobody."""
    made = FakeAuth("auth-1-id", "auth-1")
    yield made
    made.stop()


@pytest.fixture
def proxy() -> Iterator[FakeProxy]:
    """A proxy without tunnels."""
    made = FakeProxy("proxy-1-id", "proxy-1")
    yield made
    made.stop()
