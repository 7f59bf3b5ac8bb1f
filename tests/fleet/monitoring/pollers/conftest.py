"""A writer and a reader on a real Valkey."""

from __future__ import annotations

import pytest

from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import Writer


@pytest.fixture
def writer(valkey_url: str, prefix: str) -> Writer:
    """A writer with a prefix of its own."""
    return Writer(connect(valkey_url), prefix)


@pytest.fixture
def reader(valkey_url: str, prefix: str) -> Reader:
    """A reader of what `writer` writes."""
    return Reader(connect(valkey_url), prefix)
