"""A ground to play tunnels on."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator

import pytest

from tests.fakes.tunnel import Ground
from tests.fakes.tunnel import ground as make


@pytest.fixture
async def ground(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Ground]:
    """Servers, clients and services of one test; it fails when something is left behind or logged as an error."""

    def errors() -> list[str]:
        gc.collect()  # forgotten exceptions are told when their tasks go
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]

    async with make(errors) as made:
        yield made
