"""A writer and a reader on a real Valkey."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import Writer


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    """A client of the run's Valkey."""
    client = connect(valkey_url)
    yield client
    client.close()


@pytest.fixture
def writer(redis: Redis, prefix: str) -> Writer:
    """A writer with a prefix of its own."""
    return Writer(redis, prefix)


@pytest.fixture
def reader(redis: Redis, prefix: str) -> Reader:
    """A reader of what `writer` writes."""
    return Reader(redis, prefix)
