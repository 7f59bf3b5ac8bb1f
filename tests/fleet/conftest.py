"""What holds for every test of the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from fleet.transport import backend
from fleet.transport.poll_connections import Connections
from tests.fakes.instances import FakeAuth, FakeProxy

#: The real time of a call to the backend, seconds: for tests of one that says nothing.
HASTY = backend.TIMEOUT


@pytest.fixture(autouse=True)
def _patient_with_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is lost when a test takes it away, not when the machine is busy."""
    monkeypatch.setattr(backend, "TIMEOUT", 40.0)
    monkeypatch.setattr(backend, "_SOCKET_TIMEOUT", 30.0)


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
