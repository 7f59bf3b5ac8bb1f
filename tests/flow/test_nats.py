"""Real nats-servers through the real pollers into a real record: verdicts on leaf nodes, and the connection test."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.clusters.connection_test.run import run_connection_test
from fleet.clusters.source_check.run import check_source
from fleet.clusters.test_report import StepName, StepVerdict
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers import record_lists
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.pollers.plan import plan_shards
from fleet.monitoring.pollers.worker import PollingSettings, Worker
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.missing_capabilities import MissingCapabilityStore
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.monitoring.views import AgentView, InstanceView
from fleet.nodes.local.forward_names import ForwardMode
from fleet.source_plugins.nats import SOURCE
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.clusters import AddressKind
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import Reason, State
from tests.fakes.nats_servers import PROGRAM, NATSFleet, run_fleet
from tests.fakes.programs import skip_without_go_program
from tests.fakes.waiting import eventually_sync

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_CLUSTER = "nats"
_TIMING = Timing(round_interval=4.0)
_SECONDS = 120.0


class Console:
    """The pollers of one cluster, and what they conclude."""

    def __init__(self, valkey_url: str, prefix: str, addresses: list[str]) -> None:
        self.writer = Writer(connect(valkey_url), prefix)
        self.reader = Reader(connect(valkey_url), prefix)
        self.addresses = addresses
        self.worker = Worker(self.writer, PollingSettings(_TIMING, deadline=6.0))
        self.round = 0
        #: Every state that an agent had after a round.
        self.past_states: set[State] = set()
        self.writer.create(_CLUSTER, RecordSeed())

    def poll(self) -> None:
        """Poll all instances and addresses, and conclude."""
        self.round += 1
        [shard] = plan_shards(self.writer.load_instances(_CLUSTER), 100, time.time())
        handle = self.worker.open_record(_CLUSTER, self.writer.epoch(_CLUSTER))
        self.worker.poll_shard(handle, self.round, shard.instances, self.addresses, None, "nats")
        conclude(self.writer, _CLUSTER, self.round, now=time.time(), timing=_TIMING, clock=time.monotonic)
        self.past_states.update(self.states().values())

    def agent(self, agent_id: str) -> AgentView:
        """Return an agent."""
        explanation = self.reader.explain(_CLUSTER, agent_id, time.time())
        assert explanation is not None, f"no agent {agent_id}"
        return explanation.view

    def states(self) -> dict[str, State]:
        """Return the states of all agents by id."""
        ids, _ = self.writer.agent_ids_and_names(_CLUSTER)
        return {agent_id: self.agent(agent_id).state for agent_id in ids}

    def hub(self, name: str) -> InstanceView:
        """Return a hub."""
        views = self.reader.instances(_CLUSTER, time.time())
        return next(view for view in views if view.facts.name == name)

    def await_round(self, condition: Callable[[], bool]) -> None:
        """Poll until the condition holds after a round."""

        def holds_after_round() -> bool:
            self.poll()
            return condition()

        eventually_sync(holds_after_round, seconds=_SECONDS)

    def await_states(self, **states: State) -> None:
        """Poll until the agents have these states; `_` in a name stands for `-`."""
        expected_states = {name.replace("_", "-"): state for name, state in states.items()}
        self.await_round(lambda: self.states() == expected_states)


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NATSFleet]:
    """Two hubs: leaf-1 and leaf-2 at hub-1, leaf-3 at hub-2."""
    skip_without_go_program(PROGRAM)
    with run_fleet(tmp_path) as fleet:
        for hub in ("hub-1", "hub-2"):
            fleet.add_hub(hub)
        for leaf, hub in (("leaf-1", "hub-1"), ("leaf-2", "hub-1"), ("leaf-3", "hub-2")):
            fleet.add_leaf(leaf, hub)
        yield fleet


@pytest.fixture
def console(nats: NATSFleet, valkey_url: str, prefix: str) -> Iterator[Console]:
    """The console after the first rounds: all agents are healthy."""
    addresses = [nats.servers[hub].monitoring_address for hub in ("hub-1", "hub-2")]
    new_console = Console(valkey_url, prefix, addresses)
    with contextlib.closing(new_console.worker):
        new_console.await_states(leaf_1=State.HEALTHY, leaf_2=State.HEALTHY, leaf_3=State.HEALTHY)
        yield new_console


def test_a_leaf_node_that_stops_is_offline(nats: NATSFleet, console: Console) -> None:
    """And healthy with the same id when it returns: nobody else is to blame."""
    nats.servers["leaf-1"].kill()
    console.await_states(leaf_1=State.OFFLINE, leaf_2=State.HEALTHY, leaf_3=State.HEALTHY)
    assert console.agent("leaf-1").verdict.cause == ""
    nats.servers["leaf-1"].start()
    console.await_states(leaf_1=State.HEALTHY, leaf_2=State.HEALTHY, leaf_3=State.HEALTHY)


def test_a_hub_that_is_killed_strands_its_leaf_nodes(nats: NATSFleet, console: Console) -> None:
    """With the hub as the cause; they return with it."""
    nats.servers["hub-1"].kill()
    console.await_states(leaf_1=State.STRANDED, leaf_2=State.STRANDED, leaf_3=State.HEALTHY)
    assert State.OFFLINE not in console.past_states
    assert console.hub("hub-1").state is InstanceState.SILENT
    verdict = console.agent("leaf-1").verdict
    assert (verdict.cause, verdict.reason) == (console.hub("hub-1").facts.id, Reason.PROXY_UNHEALTHY)
    nats.servers["hub-1"].start()
    console.await_states(leaf_1=State.HEALTHY, leaf_2=State.HEALTHY, leaf_3=State.HEALTHY)
    assert console.hub("hub-1").state is InstanceState.OK


def test_a_leaf_port_that_does_not_respond_strands_its_leaf_nodes(nats: NATSFleet, console: Console) -> None:
    """The hub says that it is healthy, and its monitoring port responds: only Refloat's own connection tells."""
    forward = nats.forwards["hub-1"]
    nats.forwarding.change(forward, ForwardMode.HOLD)
    console.await_states(leaf_1=State.STRANDED, leaf_2=State.STRANDED, leaf_3=State.HEALTHY)
    assert State.OFFLINE not in console.past_states
    hub = console.hub("hub-1")
    assert hub.state is InstanceState.UNHEALTHY
    assert hub.sentence == (
        f"hub-1 responds, but its leaf node port 127.0.0.1:{forward.listen[1]} does not respond."
    )
    assert console.agent("leaf-1").verdict.cause == hub.facts.id
    nats.forwarding.change(forward, ForwardMode.PASS)
    console.await_states(leaf_1=State.HEALTHY, leaf_2=State.HEALTHY, leaf_3=State.HEALTHY)
    assert console.hub("hub-1").state is InstanceState.OK


def test_a_hub_that_was_removed_is_deregistered(
    nats: NATSFleet, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is not an address of the cluster any more and has not responded for 10 min, which pass at once here."""
    nats.servers["hub-2"].kill()
    console.await_round(lambda: console.hub("hub-2").state is InstanceState.SILENT)
    monkeypatch.setattr(record_lists, "_REMOVED_AFTER_SECONDS", 0.0)
    console.poll()
    assert console.hub("hub-2").state is InstanceState.SILENT
    console.addresses.pop()
    console.await_round(lambda: console.hub("hub-2").state is InstanceState.GONE)
    assert console.hub("hub-1").state is InstanceState.OK


def test_what_nats_cannot_tell_has_a_reason(console: Console) -> None:
    store = MissingCapabilityStore(console.writer.redis, console.writer.prefix)
    missing_capabilities = store.read(_CLUSTER)
    assert set(missing_capabilities) == set(Capability) - {
        Capability.INSTANCES,
        Capability.AGENTS,
        Capability.TUNNELS_BY_AGENT,
        Capability.TUNNEL_COUNTS,
        Capability.HEALTH,
    }


async def test_a_fleet_passes_the_connection_test_and_the_conformance_kit(nats: NATSFleet) -> None:
    """Every step, and every rule."""
    addresses = [server.monitoring_address for server in nats.servers.values() if server.monitoring_address]
    steps = {
        step.name: step async for step in run_connection_test(AddressKind.STATIC, addresses, None, "nats")
    }
    assert {name: step.text for name, step in steps.items() if step.verdict is not StepVerdict.OK} == {}
    assert steps[StepName.PRODUCT].text == "2 nats-servers, version 2.15.2."
    assert steps[StepName.INSTANCES].text == "2 hubs: hub-1, hub-2."
    assert steps[StepName.AGENT_PORT].text.startswith("Leaf nodes can connect to 127.0.0.1:")
    findings = await check_source(SOURCE, {"refloat"}, addresses)
    assert {finding.rule: finding.problems for finding in findings if finding.problems} == {}
