"""Redis lost while running: nothing lies, nothing dies, and everything heals when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.processes import valkey
from tests.fakes.waiting import eventually_sync
from tests.flow.running import start_demo


@pytest.mark.slow
def test_redis_given_by_url_is_lost_and_comes_back(tmp_path: Path) -> None:
    """Without Redis no agent reads *healthy* and the processes keep running; with Redis back, states are correct."""
    server = valkey.start(tmp_path / "redis")
    port = int(server.url.rsplit(":", 1)[1].partition("/")[0])
    demo = start_demo(
        tmp_path / "home", *("--auths", "1", "--proxies", "1", "--agents", "3"), REDIS_URL=server.url
    )
    try:
        demo.await_counts({"healthy": 3})
        before = {process.pid for process in demo.processes()}
        server.stop()

        eventually_sync(lambda: demo.status("fleet/summary") == 503)
        assert demo.status("agents") == 503

        server = valkey.start(tmp_path / "redis", port=port)
        demo.await_counts({"healthy": 3})
        assert {process.pid for process in demo.processes()} == before
    finally:
        demo.stop()
        server.stop()
