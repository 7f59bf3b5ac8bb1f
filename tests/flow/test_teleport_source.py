"""Rounds at a stand-in for a Teleport cluster, through the real pollers into a real record.

The stand-in proves the wire. What a role may do in it is our reading of Teleport's documentation.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from dashboards.config.celery import app
from fleet import tasks
from fleet.clusters.connection_test.run import run_connection_test
from fleet.clusters.credentials import tls_files_of
from fleet.clusters.test_report import StepName, StepVerdict
from fleet.models import Cluster
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.missing_capabilities import MissingCapabilityStore
from fleet.monitoring.state.reader import Reader, open_reader
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.clusters import AddressKind, TLSSource
from fleet.vocabulary.instances import InstanceKind, InstanceState
from fleet.vocabulary.verdicts import State
from tests.fakes import teleport
from tests.fakes.programs import skip_without
from tests.fakes.teleport import TeleportCluster, teleport_cluster
from tests.fakes.waiting import eventually_sync

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

_CLUSTER = "teleport"
_ALL_KINDS = ("node", "app_server", "db_server", "kube_server", "windows_desktop_service")


class MonitoredCluster:
    """A Teleport cluster that Refloat polls when a test says so."""

    def __init__(self, standin: TeleportCluster, reader: Reader, settings: Settings) -> None:
        self.standin = standin
        self._reader = reader
        self._settings = settings
        key, certificate, authority = standin.tls_files
        self.row = Cluster.objects.create(
            id=_CLUSTER,
            source="teleport",
            auths=[standin.auth_address(1)],
            tls_source=TLSSource.FILES,
            tls_files={"authority": str(authority), "certificate": str(certificate), "key": str(key)},
        )

    def read_from(self, *, auth: int) -> None:
        """Make Refloat read from another auth, by number."""
        self.row.auths = [self.standin.auth_address(auth)]
        self.row.save()

    def poll(self) -> FleetTable:
        """Run a round and return its table."""
        tasks.start_round()
        return self._reader.table(_CLUSTER, time.time())

    def poll_until(self, is_reached: Callable[[FleetTable], bool]) -> FleetTable:
        """Run rounds until a table has what a test expects, and return it."""
        tables: list[FleetTable] = []

        def attempt() -> bool:
            tables.append(self.poll())
            return is_reached(tables[-1])

        eventually_sync(attempt, seconds=60.0)
        return tables[-1]

    def read_missing(self) -> dict[Capability, str]:
        """Return the missing capabilities that the newest round found."""
        store = MissingCapabilityStore(connect(self._settings.REDIS_URL), self._settings.REFLOAT_PREFIX)
        return dict(store.read(_CLUSTER))


@pytest.fixture
def cluster(settings: Settings, valkey_url: str, prefix: str, tmp_path: Path) -> Iterator[MonitoredCluster]:
    """Two auths, two proxies and no agent; tasks run where they are enqueued."""
    skip_without(teleport.missing_reason())
    settings.REDIS_URL, settings.REFLOAT_PREFIX = valkey_url, prefix
    settings.REFLOAT_ROUND_INTERVAL, settings.REFLOAT_ROUND_DEADLINE = 0.001, 60.0
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    app.conf.task_always_eager = app.conf.task_eager_propagates = True
    tasks.get_worker_resources.cache_clear()
    with teleport_cluster(tmp_path) as standin:
        yield MonitoredCluster(standin, open_reader(valkey_url, prefix), settings)
        tasks.get_worker_resources().worker.close()
    tasks.get_worker_resources.cache_clear()
    app.conf.task_always_eager = app.conf.task_eager_propagates = False


def _states(table: FleetTable) -> Counter[State]:
    return Counter(State(state) for state in table.verdicts["state"].tolist())


def _has_short_ttls(table: FleetTable) -> bool:
    """Return whether every auth and proxy has sent a heartbeat with the TTL of the test."""
    return all((view.facts.expires_at or 0) < time.time() + 60 for view in table.instances.values())


def test_agents_of_every_kind_appear_within_one_round(cluster: MonitoredCluster) -> None:
    """With name, auth and version; auths and proxies too."""
    for kind in _ALL_KINDS:
        cluster.standin.change("agents", kind=kind, count=4, resources=3)
    table = cluster.poll()
    assert _states(table) == {State.HEALTHY: 20}
    kinds = Counter(view.facts.kind for view in table.instances.values())
    assert kinds == {InstanceKind.AUTH: 2, InstanceKind.PROXY: 2}
    assert {view.state for view in table.instances.values()} == {InstanceState.OK}
    auths = {index for index, view in table.instances.items() if view.facts.kind is InstanceKind.AUTH}
    assert set(table.memory["last_auth"].tolist()) <= auths
    assert cluster.read_missing().keys() >= {Capability.TUNNELS_BY_AGENT, Capability.HEALTH}
    assert not cluster.read_missing().keys() & {Capability.AGENTS, Capability.AGENT_TO_AUTH}


def test_stopped_agent_is_offline_when_its_resource_expires(cluster: MonitoredCluster) -> None:
    """Its auth and the proxies are fine: its own host is the likely cause."""
    cluster.standin.change("settings", agent_ttl_seconds=2.0)
    cluster.standin.change("agents", kind="node", count=3)
    table = cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 3})
    cluster.standin.change(f"agents/{table.ids[0]}", stopped=True)
    table = cluster.poll_until(lambda table: _states(table)[State.OFFLINE] == 1)
    assert _states(table)[State.STRANDED] == 0


def test_agents_of_an_auth_without_backend_are_at_risk_then_stranded(cluster: MonitoredCluster) -> None:
    """With the moment at which they expire, and the auth as their cause; the agents of the other auth stay healthy."""
    cluster.read_from(auth=2)
    cluster.standin.change("settings", agent_ttl_seconds=10.0, instance_ttl_seconds=3.0)
    cluster.standin.change("agents", kind="node", count=6)
    cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 6} and _has_short_ttls(table))
    auth_id = cluster.standin.ready["auths"][0]["id"]
    cluster.standin.change(f"auths/{auth_id}", backend="failed")
    table = cluster.poll_until(lambda table: _states(table)[State.AT_RISK] > 0)
    at_risk = table.verdicts[table.verdicts["state"] == State.AT_RISK]
    assert (at_risk["strands_at"] > time.time() - 1).all()
    table = cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 3, State.STRANDED: 3})
    is_stranded = table.verdicts["state"] == State.STRANDED
    causes = {table.instances[cause].facts.id for cause in table.verdicts["cause"][is_stranded].tolist()}
    assert causes == {auth_id}
    cluster.standin.change(f"auths/{auth_id}", backend="ok")
    cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 6})


def test_each_missing_verb_is_a_reason(cluster: MonitoredCluster) -> None:
    """And hides only what needs it."""
    cluster.standin.change("agents", kind="node", count=2)
    cluster.standin.change("settings", rules={"node": ["list", "read"]})
    table = cluster.poll()
    assert _states(table) == {State.HEALTHY: 2}
    reasons = cluster.read_missing()
    assert "list and read for instance" in reasons[Capability.AGENT_TO_AUTH]
    assert "list and read for" in reasons[Capability.INSTANCES]
    cluster.standin.change("settings", rules=None)
    cluster.poll()
    assert Capability.AGENT_TO_AUTH not in cluster.read_missing()


def test_older_version_lists_its_instances_by_http(cluster: MonitoredCluster) -> None:
    """PresenceService got its lists in December 2025."""
    cluster.standin.change("settings", missing=["ListAuthServers", "ListProxyServers"])
    table = cluster.poll()
    kinds = Counter(view.facts.kind for view in table.instances.values())
    assert kinds == {InstanceKind.AUTH: 2, InstanceKind.PROXY: 2}


def test_identity_file_is_ca_certificate_and_key(cluster: MonitoredCluster) -> None:
    """One file has all three, also for the HTTP API."""
    cluster.row.tls_files = dict.fromkeys(cluster.row.tls_files, str(cluster.standin.identity))
    cluster.row.save()
    cluster.standin.change("agents", kind="node", count=2)
    cluster.standin.change("settings", missing=["ListAuthServers", "ListProxyServers"])
    table = cluster.poll()
    assert _states(table) == {State.HEALTHY: 2}
    assert len(table.instances) == 4


def test_renewed_identity_file_is_read_again(cluster: MonitoredCluster) -> None:
    """A new file at the path is used from the next round on; what cannot be used leaves the connections as they are."""
    identity = cluster.standin.identity
    cluster.row.tls_source, cluster.row.tls_files = TLSSource.IDENTITY, {"identity": str(identity)}
    cluster.row.save()
    cluster.standin.change("agents", kind="node", count=2)
    assert _states(cluster.poll()) == {State.HEALTHY: 2}
    renewed = identity.read_bytes()
    identity.write_bytes(renewed[: len(renewed) // 2])
    assert _states(cluster.poll()) == {State.HEALTHY: 2}
    cluster.standin.change("identity", user="refloat", ttl_seconds=7200)
    assert identity.read_bytes() != renewed
    assert _states(cluster.poll()) == {State.HEALTHY: 2}


async def test_connection_test_names_cluster_and_version(cluster: MonitoredCluster) -> None:
    cluster.standin.change("agents", kind="node", count=2)
    tls = tls_files_of(cluster.row)
    steps = {
        step.name: step
        async for step in run_connection_test(AddressKind.STATIC, cluster.row.auths, tls, "teleport")
    }
    # The certificates of the stand-in expire tomorrow.
    assert steps.pop(StepName.TLS).verdict is StepVerdict.WARNING
    verdicts = {name: (step.verdict, step.text) for name, step in steps.items()}
    assert {verdict for verdict, _ in verdicts.values()} == {StepVerdict.OK}, verdicts
    assert "Teleport 18.1.0" in steps[StepName.IDENTITY].text
    assert steps[StepName.INSTANCES].text == "2 auths and 2 proxies."
