"""What holds for every test of the engine."""

from __future__ import annotations

import pytest

from fleet.transport import backend

#: The real time of a call to the backend, seconds: for tests of one that says nothing.
HASTY = backend.TIMEOUT


@pytest.fixture(autouse=True)
def _patient_with_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is lost when a test takes it away, not when the machine is busy."""
    monkeypatch.setattr(backend, "TIMEOUT", 40.0)
    monkeypatch.setattr(backend, "_SOCKET_TIMEOUT", 30.0)
