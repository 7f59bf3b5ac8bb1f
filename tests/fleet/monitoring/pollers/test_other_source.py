"""Rounds of a cluster of another product: the plug-in of docs/how-to/add-an-evidence-source.md.

Its entry point is in a folder of the import path. Its hubs list leaves over HTTP: there are tunnels by agent, but no
auths, no heartbeats and no policies.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typing_extensions import override

from fleet.clusters.connection_test.run import run_connection_test
from fleet.clusters.source_check.run import check_source
from fleet.clusters.test_report import ConnectionTestStep, StepVerdict
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.pollers.loaded_source import find_loaded_source, load_source
from fleet.monitoring.pollers.plan import plan_shards
from fleet.monitoring.pollers.worker import PollingSettings, Worker
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.source_plugins.registry import installed_sources, require_source, source_labels
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.clusters import AddressKind
from fleet.vocabulary.verdicts import Recovery, State, Verdict
from tests.meta.house import ROOT

CLUSTER = "default"
TIMING = Timing(round_interval=0.6)


class Hub:
    """A hub with leaves, over HTTP."""

    def __init__(self, name: str, *leaf_names: str) -> None:
        self.name, self.leaf_names, self.status = name, list(leaf_names), "ok"
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Respond to any path."""
                body = json.dumps(
                    {
                        "name": hub.name,
                        "leafs": [{"name": leaf} for leaf in hub.leaf_names],
                        "status": hub.status,
                    }
                ).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            @override
            def log_message(self, format: str, *args: object) -> None:
                """Write no log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()


class HubFleet:
    """Two hubs, and the worker that polls them."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self.writer, self.reader = writer, reader
        self.hubs = [Hub("hub-1", "leaf-1", "leaf-2"), Hub("hub-2", "leaf-3")]
        self.worker = Worker(writer, PollingSettings(TIMING, deadline=20.0))
        self.round = 0
        self.epoch = writer.create(CLUSTER, RecordSeed())

    def poll(self, rounds: int = 1) -> None:
        """Poll the whole fleet as one shard, and conclude the round."""
        for _ in range(rounds):
            self.round += 1
            [shard] = plan_shards(self.writer.load_instances(CLUSTER), 100, time.time())
            handle = self.worker.open_record(CLUSTER, self.writer.epoch(CLUSTER))
            addresses = [hub.address for hub in self.hubs]
            self.worker.poll_shard(handle, self.round, shard.instances, addresses, source="hubs")
            conclude(
                self.writer, CLUSTER, self.round, now=time.time(), timing=TIMING, clock=time.perf_counter
            )

    def verdict(self, leaf: str) -> Verdict:
        """Return the verdict on a leaf."""
        explanation = self.reader.explain(CLUSTER, leaf, time.time())
        assert explanation is not None, leaf
        return explanation.view.verdict


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the package of the how-to in a folder of the import path."""
    text = (ROOT / "docs/how-to/add-an-evidence-source.md").read_text()
    declaration, polling, steps = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    [project] = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    [entry_point] = re.findall(r'^(\w+) = "(.*)"$', project, re.MULTILINE)
    package, metadata = tmp_path / "refloat_hubs", tmp_path / "refloat_hubs-1.0.dist-info"
    for folder in (package, metadata):
        folder.mkdir()
    (package / "__init__.py").write_text(declaration)
    (package / "polling.py").write_text(polling)
    (package / "steps.py").write_text(steps)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: refloat-hubs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[refloat.sources]\n{' = '.join(entry_point)}\n")
    monkeypatch.syspath_prepend(tmp_path)
    for cache in (installed_sources, load_source, find_loaded_source):
        cache.cache_clear()
    yield
    for cache in (installed_sources, load_source, find_loaded_source):
        cache.cache_clear()


@pytest.fixture
def fleet(plug_in: None, writer: Writer, reader: Reader) -> Iterator[HubFleet]:
    """Hubs whose leaves were seen."""
    hub_fleet = HubFleet(writer, reader)
    hub_fleet.poll(2)
    yield hub_fleet
    hub_fleet.worker.close()
    for hub in hub_fleet.hubs:
        hub.stop()


def test_a_plug_in_is_found_by_its_entry_point(plug_in: None) -> None:
    assert source_labels()["hubs"] == "Hubs"


def test_leaves_are_reachable_through_their_hub(fleet: HubFleet) -> None:
    """Without heartbeats: what is missing is known with its reason, and is not a fault."""
    verdicts = {leaf: fleet.verdict(leaf) for leaf in ("leaf-1", "leaf-2", "leaf-3")}
    assert {verdict.state for verdict in verdicts.values()} == {State.HEALTHY}
    assert verdicts["leaf-3"].sentence == "The agent is reachable through hub-2."
    missing_capabilities = fleet.reader.missing_capabilities(CLUSTER)
    assert missing_capabilities[Capability.RECONNECT_ADVICE] == "Leaves reconnect by themselves only."
    assert Capability.TUNNELS_BY_AGENT not in missing_capabilities


def test_a_leaf_that_stops_is_offline(fleet: HubFleet) -> None:
    """Its hub is fine; when it comes back it is healthy."""
    fleet.hubs[0].leaf_names.remove("leaf-1")
    fleet.poll()
    assert fleet.verdict("leaf-1").state is State.OFFLINE
    assert fleet.verdict("leaf-2").state is State.HEALTHY
    fleet.hubs[0].leaf_names.append("leaf-1")
    fleet.poll()
    assert fleet.verdict("leaf-1").state is State.HEALTHY


def test_a_hub_that_stops_strands_its_leaves(fleet: HubFleet) -> None:
    """The hub is the cause, and the leaves of the other one are healthy; no recovery is predicted."""
    fleet.hubs[0].stop()
    fleet.poll(2)
    for leaf in ("leaf-1", "leaf-2"):
        verdict = fleet.verdict(leaf)
        assert (verdict.state, verdict.cause) == (State.STRANDED, "hub-1")
        assert verdict.recovery is not Recovery.BY_ITSELF
    assert fleet.verdict("leaf-3").state is State.HEALTHY


def test_a_hub_that_is_unhealthy_puts_its_leaves_at_risk(fleet: HubFleet) -> None:
    fleet.hubs[0].status = "unavailable"
    fleet.poll()
    verdict = fleet.verdict("leaf-1")
    assert (verdict.state, verdict.cause) == (State.AT_RISK, "hub-1")
    assert fleet.verdict("leaf-3").state is State.HEALTHY


def test_the_plug_in_keeps_every_rule(fleet: HubFleet) -> None:
    """Also with the lists of real hubs, and every step of its connection test is good."""
    addresses = [hub.address for hub in fleet.hubs]
    findings = asyncio.run(check_source(require_source("hubs"), {"refloat"}, addresses))
    assert [finding for finding in findings if finding.problems] == []

    async def run_test() -> list[ConnectionTestStep]:
        return [step async for step in run_connection_test(AddressKind.STATIC, addresses, None, "hubs")]

    steps = asyncio.run(run_test())
    assert [step.name for step in steps] == list(require_source("hubs").test_steps)
    assert {step.verdict for step in steps} == {StepVerdict.OK}
