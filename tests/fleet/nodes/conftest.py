"""Real nodes for the tests of nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fleet.protocol.recovery import announce
from tests.fakes.agents import Agents
from tests.fakes.plane import Plane


@pytest.fixture(autouse=True)
def _proxies_look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """With long TTLs too, under which nothing expires because the machine is busy."""
    monkeypatch.setattr(announce, "CHECK_PERIOD", 0.2)


@pytest.fixture
async def plane(valkey_url: str, prefix: str) -> AsyncIterator[Plane]:
    """A control plane whose nodes end with the test."""
    made = Plane(valkey_url, prefix)
    yield made
    await made.close()


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    """Agents sent by hand, ended with the test."""
    made = Agents()
    yield made
    await made.close()
