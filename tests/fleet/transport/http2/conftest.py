"""Both ends of a connection, after the SETTINGS of their peers."""

from __future__ import annotations

import pytest

from tests.fakes.http2_ends import Endpoint


@pytest.fixture
async def server() -> Endpoint:
    endpoint = Endpoint(server=True)
    endpoint.receive_settings()
    return endpoint


@pytest.fixture
async def client() -> Endpoint:
    endpoint = Endpoint(server=False)
    endpoint.receive_settings()
    return endpoint
