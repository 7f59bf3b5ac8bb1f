"""Redis lost while running: nothing lies, nothing dies, and everything heals when it is back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleet.processes import valkey
from tests.fakes.waiting import eventually_sync
from tests.flow.running import Demo, start_demo


def _read_waits(demo: Demo, worker: str) -> list[float]:
    """Return the seconds that a worker waited, or waits, between its attempts to reach Redis."""
    log = (demo.home / "log" / f"worker-{worker}.log").read_text(errors="replace")
    return [float(seconds) for seconds in re.findall(r"Trying again in ([0-9.]+) seconds", log)]


@pytest.mark.slow
def test_redis_given_by_url_is_lost_and_comes_back(tmp_path: Path) -> None:
    """Without Redis no agent reads *healthy* and the processes keep running; with Redis back, states are correct.
    Workers wait longer before each further attempt.
    """
    server = valkey.start(tmp_path / "redis")
    port = int(server.url.rsplit(":", 1)[1].partition("/")[0])
    demo = start_demo(
        tmp_path / "home", *("--auths", "1", "--proxies", "1", "--agents", "3"), REDIS_URL=server.url
    )
    try:
        demo.await_counts({"healthy": 3})
        before = {process.pid for process in demo.processes()}
        earlier_counts = {worker: len(_read_waits(demo, worker)) for worker in ("polls", "actions")}
        server.stop()

        eventually_sync(lambda: demo.status("fleet/summary") == 503)
        assert demo.status("agents") == 503
        for worker, earlier_count in earlier_counts.items():
            eventually_sync(
                lambda worker=worker, count=earlier_count + 3: len(_read_waits(demo, worker)) >= count,
                seconds=120,
            )
            waits = _read_waits(demo, worker)[earlier_count:]
            assert 1 <= waits[0] < waits[1] < waits[2] <= 30

        server = valkey.start(tmp_path / "redis", port=port)
        demo.await_counts({"healthy": 3})
        assert {process.pid for process in demo.processes()} == before
    finally:
        demo.stop()
        server.stop()
