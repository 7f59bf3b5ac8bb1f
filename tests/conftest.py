"""What every test may ask for: a real Valkey, and a prefix of its own in it."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Before Django reads its settings: no test touches an installation's state.
os.environ["REFLOAT_HOME"] = tempfile.mkdtemp(prefix="refloat-test-")
os.environ.setdefault("REFLOAT_PREFIX", f"test-{secrets.token_hex(4)}")

import pytest

from fleet.processes import valkey


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Valkey for the whole run, on a port of its own; `prefix` keeps tests apart in it."""
    server = valkey.start(Path(tmp_path_factory.mktemp("valkey")), persist=False)
    yield server.url
    server.stop()


@pytest.fixture
def prefix() -> str:
    """A key prefix nobody else uses."""
    return f"t{secrets.token_hex(6)}"
