"""What every test may ask for: a real Valkey, a prefix of its own in it, and a demo to share."""

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
# Of this process alone: tests run in several, and each inherits what the first one set.
os.environ["REFLOAT_PREFIX"] = f"test-{secrets.token_hex(4)}"

# No test reaches a Redis that happens to run on this machine: a test without a Valkey of its own is refused at once.
# Only this process reads the variable: programs that a test starts get their own.
os.environ["REDIS_URL"] = "redis://127.0.0.1:1/0"

import django
import hypothesis
import pytest
from django.conf import settings

django.setup()
settings.CONFIGURED_REDIS_URL = None
del os.environ["REDIS_URL"]

# A slow hash protects people, and no user of a test is a person. Programs that tests start keep the slow one.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# A busy machine is no failure of an example, and every run tries the same ones: who changed nothing breaks nothing.
# `make laws` tries others: with the profile "random", by a seed that it prints.
hypothesis.settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "random",
    parent=hypothesis.settings.get_profile("steady"),
    derandomize=False,
    database=None,
    print_blob=True,
)
hypothesis.settings.load_profile("steady")

from fleet.processes import valkey
from tests.flow.running import AGENTS, Demo, start_demo

pytest_plugins = ("tests.scheduling", "tests.garbage", "tests.skips", "tests.timings")

# A shell ignores SIGINT for what it runs in the background, and nohup ignores SIGHUP. Every program that a test starts
# would inherit that: `refloat` would not end on Ctrl-C, and ssh could not end its ProxyCommand.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


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


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A running demo with all its agents healthy when it is first asked for. Leave it as you found it.

    Announce TTLs of a minute: agents of a proxy that was frozen for a few seconds do not go elsewhere meanwhile, to
    keep two tunnels ever after.
    """
    shape = ("--auths", "2", "--proxies", "2", "--agents", str(AGENTS), "--announce-ttl", "60s")
    demo_process = start_demo(tmp_path_factory.mktemp("demo"), *shape)
    try:
        demo_process.await_counts({"healthy": AGENTS})
        yield demo_process
    finally:
        demo_process.stop()


@pytest.fixture
def whole_demo(demo: Demo) -> Iterator[Demo]:
    """The demo with everything healthy, before a test and after it."""
    demo.await_counts({"healthy": AGENTS})
    yield demo
    demo.await_counts({"healthy": AGENTS})
