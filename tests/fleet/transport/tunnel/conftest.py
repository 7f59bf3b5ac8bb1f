"""Fixture for tunnel servers, clients and services."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator

import pytest

from tests.fakes.tunnel import Ground
from tests.fakes.tunnel import ground as make_ground


@pytest.fixture
async def ground(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Ground]:
    """Return a ground for the servers, clients and services of a test. It fails on leftovers and logged
    errors.
    """

    def errors() -> list[str]:
        gc.collect()  # exceptions that were never retrieved are logged when their tasks are collected
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]

    async with make_ground(errors) as tunnel_ground:
        yield tunnel_ground
