"""A client of a real Valkey, and auths and proxies that are real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis import Redis

from fleet.monitoring.state.connect import connect
from tests.fakes.plane import Plane


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    """A client of the run's Valkey."""
    client = connect(valkey_url)
    yield client
    client.close()


@pytest.fixture
async def plane(valkey_url: str, prefix: str) -> AsyncIterator[Plane]:
    """Yield a control plane whose instances are closed after the test."""
    control_plane = Plane(valkey_url, prefix)
    yield control_plane
    await control_plane.close()
