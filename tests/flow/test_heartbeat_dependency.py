"""Proxies whose only auth is frozen, as real processes: their verdicts and the single incident."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.alerts.facts import ClusterFacts, facts_of_table
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.pollers.plan import plan_shards
from fleet.monitoring.pollers.worker import PollingSettings, Worker
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.processes.supervisor import Child, Supervisor, has_ready_line
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State
from tests.fakes.alerting import AlertSimulation
from tests.fakes.waiting import eventually_sync
from tests.meta.house import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLUSTER = "default"
AGENTS = 6
#: A frozen auth costs every round its whole deadline.
INTERVAL, DEADLINE = 2.0, 1.5
#: For the fleet to settle on a machine that does other things, seconds.
PATIENCE = 180.0


@dataclass
class Scene:
    """Two auths, two proxies that know one of them, agents that heartbeat to the other; and a console."""

    supervisor: Supervisor
    backend: tuple[str, ...]
    writer: Writer
    reader: Reader
    worker: Worker = field(init=False)
    round: int = 0
    auths: list[Child] = field(default_factory=list)

    def start(self) -> None:
        """Start all of it."""
        self.auths = [self._node("auth", f"auth-{n}") for n in (1, 2)]
        self.supervisor.await_ready(self.auths, timeout=PATIENCE)
        only = ("--auth-http", str(self.auths[0].ready_message["http"]))
        proxies = [self._node("proxy", f"proxy-{n}", *only) for n in (1, 2)]
        self.supervisor.await_ready(proxies, timeout=PATIENCE)
        addresses = ",".join(str(proxy.ready_message["grpc"]) for proxy in proxies)
        agents = self._child(
            "agents",
            *("agent", "--count", str(AGENTS), "--connections", "1", "--announce-ttl", "20s"),
            *("--auth", str(self.auths[1].ready_message["grpc"]), "--proxy", addresses),
        )
        self.supervisor.await_ready([agents], timeout=PATIENCE)
        self.writer.create(CLUSTER, RecordSeed())
        self.worker = Worker(self.writer, PollingSettings(Timing(round_interval=INTERVAL), deadline=DEADLINE))

    def _node(self, role: str, name: str, *flags: str) -> Child:
        return self._child(name, role, "--name", name, "--announce-ttl", "4s", *self.backend, *flags)

    def _child(self, name: str, *argv: str) -> Child:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return self.supervisor.start(
            name, [sys.executable, "-m", "fleet.nodes", *argv], env=env, readiness_probe=has_ready_line
        )

    def freeze(self, *, frozen: bool) -> None:
        """Stop the first auth, or let it go on."""
        os.kill(self.auths[0].pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def look(self) -> FleetTable:
        """Poll everything and conclude a round."""
        self.round += 1
        (shard,) = plan_shards(self.writer.load_instances(CLUSTER), 100, time.time())
        bootstrap = [str(self.auths[1].ready_message["grpc"])]
        place = self.worker.open_record(CLUSTER, self.writer.epoch(CLUSTER))
        self.worker.poll_shard(place, self.round, shard.instances, bootstrap)
        timing = Timing(round_interval=INTERVAL)
        conclude(self.writer, CLUSTER, self.round, now=time.time(), timing=timing, clock=time.monotonic)
        return self.reader.table(CLUSTER, time.time())

    def until(self, condition: Callable[[FleetTable], bool]) -> FleetTable:
        """Look until something is met."""
        tables: list[FleetTable] = []

        def is_reached() -> bool:
            tables[:] = [self.look()]
            return condition(tables[0])

        eventually_sync(is_reached, seconds=PATIENCE)
        return tables[0]


@pytest.fixture
def scene(valkey_url: str, prefix: str, tmp_path: Path) -> Iterator[Scene]:
    """All well."""
    backend = ("--backend", valkey_url, "--backend-prefix", f"{prefix}nodes")
    redis = connect(valkey_url)
    with Supervisor(tmp_path / "logs") as supervisor:
        new_scene = Scene(supervisor, backend, Writer(redis, prefix), Reader(redis, prefix))
        new_scene.start()
        yield new_scene
        new_scene.freeze(frozen=False)
        new_scene.worker.close()


def view(table: FleetTable, name: str) -> InstanceView:
    return next(view for view in table.instances.values() if view.facts.name == name)


def facts(table: FleetTable) -> ClusterFacts:
    """Facts as they were when the round concluded."""
    assert table.as_of is not None
    return facts_of_table(table, table.as_of)


def all_well(table: FleetTable) -> bool:
    """Return whether every instance and agent is known and healthy, and no agent is affected."""
    if len(table.instances) < 4 or len(table.ids) < AGENTS:
        return False
    instance_facts = facts(table)
    states = [view.state for view in table.instances.values()]
    return (
        states == [InstanceState.OK] * 4
        and not instance_facts.affected_groups
        and State.UNKNOWN not in table.verdicts["state"]
    )


def test_frozen_auth_is_the_one_cause_of_its_proxies_and_their_agents(scene: Scene) -> None:
    """Both proxies are sick because of auth-1, every agent is at risk because of it, and one incident says so."""
    before = scene.until(all_well)
    auth = view(before, "auth-1").facts
    assert view(before, "auth-1").proxies == ("proxy-1", "proxy-2")
    assert [view(before, name).facts.heartbeat_auth for name in ("proxy-1", "proxy-2")] == [auth.id] * 2

    scene.freeze(frozen=True)

    def has_harmed_agents(table: FleetTable) -> bool:
        causes = [view(table, name).cause for name in ("proxy-1", "proxy-2")]
        rows = table.verdicts
        return (
            view(table, "auth-1").state is InstanceState.SILENT
            and causes == [auth.id] * 2
            and rows["state"].tolist() == [State.AT_RISK] * AGENTS
            and rows["cause"].tolist() == [auth.index] * AGENTS
        )

    down = scene.until(has_harmed_agents)
    for name in ("proxy-1", "proxy-2"):
        assert view(down, name).sentence.endswith(": its auth auth-1 is not responding.")
    sentence = scene.reader.agent(down, 0).verdict.sentence
    assert "because its auth auth-1 is not responding" in sentence

    scene.freeze(frozen=False)
    after = scene.until(all_well)

    simulation = AlertSimulation(now=time.time(), poll_interval=INTERVAL)
    for seconds, table in ((20, before), (300, down), (900, after)):
        simulation.run(seconds, facts(table))
    assert simulation.notification_kinds == ["firing", "resolved"]
    assert {notice.incident.cause.name for _, notice in simulation.notifications} == {"auth-1"}
    assert simulation.notifications[0][1].incident.affected_count == AGENTS
