"""What every test may ask for: a real Valkey, and a prefix of its own in it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Before Django reads its settings: no test touches an installation's state. So the settings are named here, and not
# in pyproject.toml: from there pytest-django would have read them before this file.
_HOME = tempfile.mkdtemp(prefix="refloat-test-")
os.environ["REFLOAT_HOME"] = _HOME
os.environ["DJANGO_SETTINGS_MODULE"] = "dashboards.config.settings"
os.environ.setdefault("REFLOAT_PREFIX", f"test-{secrets.token_hex(4)}")

import django
import pytest

django.setup()

from fleet.processes import valkey

# A shell starts what it runs in the background with SIGINT ignored, and so would be all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    """Leave nothing behind."""
    shutil.rmtree(_HOME, ignore_errors=True)


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
