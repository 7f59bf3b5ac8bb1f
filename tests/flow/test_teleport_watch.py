"""Watches at a stand-in for a Teleport cluster, held by workers in processes of their own.

The stand-in proves the wire. When a Teleport cluster ends a watch is our reading of its documentation.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.writer import Writer
from tests.fakes import teleport
from tests.fakes.programs import skip_without
from tests.fakes.teleport import TeleportCluster, teleport_cluster
from tests.meta.house import ROOT

pytestmark = pytest.mark.slow

#: Seconds per round: long enough for a list on a busy machine.
INTERVAL = 3.0
#: The first round of a worker that starts in the middle of one is not counted.
MAX_ROUNDS = 2


class PollingWorker:
    """A worker process that polls the rounds that no other worker has claimed."""

    def __init__(self, standin: TeleportCluster, url: str, prefix: str) -> None:
        key, certificate, authority = map(str, standin.tls_files)
        argv = [sys.executable, "-m", "tests.bench._watch_worker", "--url", url, "--prefix", prefix]
        argv += ["--address", standin.auth_address(), "--interval", str(INTERVAL)]
        argv += ["--key", key, "--certificate", certificate, "--authority", authority]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def await_round(self) -> dict[str, Any]:
        """Return the report of its next round."""
        assert self.process.stdout is not None, "the process was started with a pipe"
        line = self.process.stdout.readline()
        assert line, f"the worker ended with {self.process.wait()}"
        report: dict[str, Any] = json.loads(line)
        return report

    def await_rounds_until(self, is_reached: Callable[[dict[str, Any]], bool], limit: int) -> int:
        """Return how many rounds it takes."""
        for count in range(1, limit + 1):
            if is_reached(self.await_round()):
                return count
        raise AssertionError(f"it did not happen within {limit} rounds")

    def stop(self) -> None:
        """Kill the process; it may be dead already."""
        with self.process:
            self.process.kill()


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[TeleportCluster]:
    """A cluster with 50 nodes."""
    skip_without(teleport.missing_reason())
    with teleport_cluster(tmp_path) as running_standin:
        running_standin.change("agents", kind="node", count=50)
        yield running_standin


@pytest.fixture
def start_worker(
    standin: TeleportCluster, valkey_url: str, prefix: str
) -> Iterator[Callable[[], PollingWorker]]:
    """Start a worker, which is killed at the end."""
    with ExitStack() as stack:

        def start() -> PollingWorker:
            worker = PollingWorker(standin, valkey_url, prefix)
            stack.callback(worker.stop)
            return worker

        yield start


def list_count(standin: TeleportCluster) -> int:
    """Return how many complete lists were read: of five kinds, each with one page."""
    calls = standin.state()["calls"]
    return sum(count for method, count in calls.items() if method.endswith("/ListResources")) // 5


def test_lost_watch_and_killed_holder_cost_one_list_each(
    standin: TeleportCluster, start_worker: Callable[[], PollingWorker], valkey_url: str, prefix: str
) -> None:
    """Within two rounds, also of another worker; agents that came meanwhile are there, and nothing else is listed."""
    holder = start_worker()
    first_epoch = holder.await_round()["epoch"]
    assert (standin.state()["watches"], list_count(standin)) == (1, 1)
    standin.change("agents", kind="app_server", count=1)
    holder.await_rounds_until(lambda report: report["revision"] > 0, 10)
    standin.change("watches", drop="*")
    holder.await_rounds_until(lambda report: report["epoch"] != first_epoch, MAX_ROUNDS)
    second_epoch = holder.await_round()["epoch"]
    assert (standin.state()["watches"], list_count(standin)) == (1, 2)
    successor = start_worker()
    successor.await_round()
    holder.stop()
    standin.change("agents", kind="db_server", count=1)
    successor.await_rounds_until(
        lambda report: report["epoch"] not in {first_epoch, second_epoch}, MAX_ROUNDS
    )
    successor.await_round()
    assert (standin.state()["watches"], list_count(standin)) == (1, 3)
    ids, _ = Writer(connect(valkey_url), prefix).agent_ids_and_names("teleport")
    assert len(ids) == 52


def test_cluster_without_watches_is_listed(
    standin: TeleportCluster, start_worker: Callable[[], PollingWorker]
) -> None:
    standin.change("settings", missing=["/proto.AuthService/WatchEvents"])
    worker = start_worker()
    assert {worker.await_round()["epoch"] for _ in range(2)} == {"list"}
    assert (standin.state()["watches"], list_count(standin)) == (0, 2)
