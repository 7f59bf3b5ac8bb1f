"""Fixtures with real instances and agents for the tests of `fleet.nodes`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fleet.protocol.recovery import announce
from tests.fakes.agents import Agents
from tests.fakes.plane import Plane


@pytest.fixture(autouse=True)
def _short_check_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make proxies check for changes every 0.2 s: tests can use long TTLs, which never expire on a busy machine."""
    monkeypatch.setattr(announce, "CHECK_PERIOD", 0.2)


@pytest.fixture
async def plane(valkey_url: str, prefix: str) -> AsyncIterator[Plane]:
    """Yield a control plane whose instances are closed after the test."""
    control_plane = Plane(valkey_url, prefix)
    yield control_plane
    await control_plane.close()


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    """Yield fake agents that are closed after the test."""
    fake_agents = Agents()
    yield fake_agents
    await fake_agents.close()
