"""A client of a real Valkey."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from fleet.monitoring.state.connect import connect


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    """A client of the run's Valkey."""
    client = connect(valkey_url)
    yield client
    client.close()
