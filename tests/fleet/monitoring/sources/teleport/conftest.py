from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.teleport_auth import FakeTeleportAuth


@pytest.fixture
def teleport_auth() -> Iterator[FakeTeleportAuth]:
    """An auth of a Teleport cluster without resources."""
    auth = FakeTeleportAuth()
    yield auth
    auth.stop()
