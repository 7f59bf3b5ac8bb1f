"""Fixtures for all tests of the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from fleet.transport import backend
from fleet.transport.poll_connections import Connections
from tests.fakes.instances import FakeAuth, FakeProxy

#: The timeout of a backend call outside tests in seconds: for tests of a backend that does not respond.
HASTY = backend.TIMEOUT


@pytest.fixture(autouse=True)
def _long_backend_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the backend timeouts, so that a busy machine does not fail tests."""
    monkeypatch.setattr(backend, "TIMEOUT", 40.0)
    monkeypatch.setattr(backend, "_SOCKET_TIMEOUT", 30.0)


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    """Open connections and close them at the end."""
    new_connections = Connections()
    yield new_connections
    await new_connections.close()


@pytest.fixture
def auth() -> Iterator[FakeAuth]:
    """Run an auth that lists no instances and agents."""
    fake_auth = FakeAuth("auth-1-id", "auth-1")
    yield fake_auth
    fake_auth.stop()


@pytest.fixture
def proxy() -> Iterator[FakeProxy]:
    """Run a proxy without tunnels."""
    fake_proxy = FakeProxy("proxy-1-id", "proxy-1")
    yield fake_proxy
    fake_proxy.stop()
