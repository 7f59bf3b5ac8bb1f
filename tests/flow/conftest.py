"""A demo for the flow tests to share; those that destroy one start their own with `start_demo`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flow.running import Demo, start_demo

#: A fleet of two auths and two proxies: one of each can fail, and half the agents with it.
AGENTS = 40


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A running demo with all its agents healthy when it is first asked for. Leave it as you found it.

    Announce TTLs of a minute: agents of a proxy that was frozen for a few seconds do not go elsewhere meanwhile, to
    keep two tunnels ever after.
    """
    shape = ("--auths", "2", "--proxies", "2", "--agents", str(AGENTS), "--announce-ttl", "60s")
    running = start_demo(tmp_path_factory.mktemp("demo"), *shape)
    try:
        running.await_counts({"healthy": AGENTS})
        yield running
    finally:
        running.end()


@pytest.fixture
def whole_demo(demo: Demo) -> Iterator[Demo]:
    """The demo with everything healthy, before a test and after it."""
    demo.await_counts({"healthy": AGENTS})
    yield demo
    demo.await_counts({"healthy": AGENTS})
