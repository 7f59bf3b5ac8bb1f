"""Rounds at a stand-in for a Teleport cluster, through the real pollers into a real record.

The stand-in proves the wire. What a role may do in it is our reading of Teleport's documentation.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from dashboards.config.celery import app
from fleet import tasks
from fleet.alerts.evaluator import Evaluator
from fleet.clusters.connection_test.run import run_connection_test
from fleet.clusters.credentials import tls_files_of
from fleet.clusters.test_report import StepName, StepVerdict
from fleet.models import Cluster
from fleet.models.incidents import Incident
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.missing_capabilities import MissingCapabilityStore
from fleet.monitoring.state.reader import Reader, open_reader
from fleet.monitoring.views import FleetTable, InstanceView
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
_PRESENCE_LISTS = [f"/teleport.presence.v1.PresenceService/List{kind}Servers" for kind in ("Auth", "Proxy")]
_ALL_KINDS = ("node", "app_server", "db_server", "kube_server", "windows_desktop_service")


class MonitoredCluster:
    """A Teleport cluster that Refloat polls when a test says so."""

    def __init__(self, standin: TeleportCluster, reader: Reader, settings: Settings) -> None:
        self.standin = standin
        self.reader = reader
        self._settings = settings
        key, certificate, authority = standin.tls_files
        self.row = Cluster.objects.create(
            id=_CLUSTER,
            source="teleport",
            auths=[standin.auth_address(1)],
            tls_source=TLSSource.FILES,
            tls_files={"authority": str(authority), "certificate": str(certificate), "key": str(key)},
        )

    def diag_addresses(self) -> dict[str, str]:
        """Return the diag address of every instance by its id."""
        return {
            instance["id"]: instance["diag"]
            for kind in ("auths", "proxies")
            for instance in self.standin.ready[kind]
        }

    def enter_diag_addresses(self) -> None:
        """Enter the diag address of every instance."""
        self.row.diag_addresses = self.diag_addresses()
        self.row.save()

    def read_from(self, *, auth: int) -> None:
        """Make Refloat read from another auth, by number."""
        self.row.auths = [self.standin.auth_address(auth)]
        self.row.save()

    def poll(self) -> FleetTable:
        """Run a round and return its table."""
        tasks.start_round()
        return self.reader.table(_CLUSTER, time.time())

    def poll_until(self, is_reached: Callable[[FleetTable], bool]) -> FleetTable:
        """Run rounds until a table has what a test expects, and return it."""
        tables: list[FleetTable] = []

        def attempt() -> bool:
            tables.append(self.poll())
            return is_reached(tables[-1])

        eventually_sync(attempt, seconds=60.0)
        return tables[-1]

    def read_notice(self) -> str:
        """Return what people must know of the lists."""
        return self.reader.list_notice(_CLUSTER)

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


def _instance(table: FleetTable, instance_id: str) -> InstanceView:
    return next(view for view in table.instances.values() if view.facts.id == instance_id)


def _has_polls(table: FleetTable) -> bool:
    """Return whether every instance has responded at its diag address."""
    return bool(table.instances) and all(
        view.facts.counted_at is not None and view.facts.readyz == 200 for view in table.instances.values()
    )


def _has_short_ttls(table: FleetTable) -> bool:
    """Return whether every auth and proxy has sent a heartbeat with the TTL of the test."""
    return all((view.facts.expires_at or 0) < time.time() + 60 for view in table.instances.values())


def test_agents_of_every_kind_appear_within_one_round(cluster: MonitoredCluster) -> None:
    """Each with one of the auths; auths and proxies too."""
    for kind in _ALL_KINDS:
        cluster.standin.change("agents", kind=kind, count=4, resources=3)
    table = cluster.poll()
    assert _states(table) == {State.HEALTHY: 20}
    kinds = Counter(view.facts.kind for view in table.instances.values())
    assert kinds == {InstanceKind.AUTH: 2, InstanceKind.PROXY: 2}
    assert {view.state for view in table.instances.values()} == {InstanceState.OK}
    auths = {index for index, view in table.instances.items() if view.facts.kind is InstanceKind.AUTH}
    assert set(table.memory["last_auth"].tolist()) <= auths
    reasons = cluster.read_missing()
    assert "no diag addresses of its auths and proxies: enter them" in reasons[Capability.HEALTH]
    assert "no diag addresses of its proxies: enter them" in reasons[Capability.TUNNEL_COUNTS]
    assert Capability.TUNNELS_BY_AGENT in reasons
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


def test_agents_of_a_dead_proxy_are_stranded_with_proxy_peering(cluster: MonitoredCluster) -> None:
    """Resources then name the proxies of each agent, and an agent with one proxy depends on it."""
    cluster.standin.change(
        "settings", peering=True, reconnect=False, agent_ttl_seconds=6.0, instance_ttl_seconds=3.0
    )
    cluster.standin.change("agents", kind="node", count=6)
    cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 6} and _has_short_ttls(table))
    proxy_id = cluster.standin.ready["proxies"][0]["id"]
    cluster.standin.change(f"proxies/{proxy_id}", running=False)
    table = cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 3, State.STRANDED: 3})
    is_stranded = table.verdicts["state"] == State.STRANDED
    causes = {table.instances[cause].facts.id for cause in table.verdicts["cause"][is_stranded].tolist()}
    assert causes == {proxy_id}
    cluster.standin.change(f"proxies/{proxy_id}", running=True)
    cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 6})


def test_leaf_cluster_depends_on_its_only_proxy(cluster: MonitoredCluster) -> None:
    """Healthy with its tunnel, stranded without it because of the proxy; healthy again."""
    # Each round reads the lists, as at a version that cannot be watched.
    cluster.standin.change("settings", instance_ttl_seconds=3.0, missing=["/proto.AuthService/WatchEvents"])
    proxy_id = cluster.standin.ready["proxies"][0]["id"]
    cluster.standin.change("leaves/leaf.example.com", online=True, proxies=[proxy_id])
    table = cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 1} and _has_short_ttls(table))
    assert list(table.ids) == ["leaf.example.com"]
    cluster.standin.change(f"proxies/{proxy_id}", running=False)
    cluster.standin.change("leaves/leaf.example.com", online=False)
    table = cluster.poll_until(lambda table: _states(table) == {State.STRANDED: 1})
    [cause] = table.verdicts["cause"].tolist()
    assert table.instances[cause].facts.id == proxy_id
    cluster.standin.change(f"proxies/{proxy_id}", running=True)
    cluster.standin.change("leaves/leaf.example.com", online=True)
    cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 1})


def test_auth_without_backend_is_unhealthy_before_its_heartbeat_expires(cluster: MonitoredCluster) -> None:
    """Its agents are at risk first, with the moment at which they expire; then stranded because of the auth.

    That is one incident.
    """
    evaluator = Evaluator(cluster.reader, "test")
    cluster.read_from(auth=2)
    cluster.enter_diag_addresses()
    cluster.standin.change("settings", agent_ttl_seconds=10.0)
    cluster.standin.change("agents", kind="node", count=6)
    cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 6} and _has_polls(table))
    assert not cluster.read_missing().keys() & {Capability.HEALTH, Capability.TUNNEL_COUNTS}
    auth_id = cluster.standin.ready["auths"][0]["id"]
    cluster.standin.change(f"auths/{auth_id}", backend="failed")
    table = cluster.poll_until(lambda table: _states(table)[State.AT_RISK] > 0)
    auth = _instance(table, auth_id)
    # The heartbeat of the auth is valid for minutes.
    assert (auth.state, auth.facts.readyz) == (InstanceState.UNHEALTHY, 503)
    assert (auth.facts.expires_at or 0) > time.time() + 60
    at_risk = table.verdicts[table.verdicts["state"] == State.AT_RISK]
    assert {table.instances[cause].facts.id for cause in at_risk["cause"].tolist()} == {auth_id}
    assert (at_risk["strands_at"] > time.time() - 1).all()
    evaluator.evaluate_cluster(_CLUSTER, time.time())
    table = cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 3, State.STRANDED: 3})
    is_stranded = table.verdicts["state"] == State.STRANDED
    causes = {table.instances[cause].facts.id for cause in table.verdicts["cause"][is_stranded].tolist()}
    assert causes == {auth_id}
    evaluator.evaluate_cluster(_CLUSTER, time.time())
    assert [incident.cause_id for incident in Incident.objects.all()] == [auth_id]
    cluster.standin.change(f"auths/{auth_id}", backend="ok")
    cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 6})


def test_lists_of_an_auth_without_backend_are_not_used_while_there_are_others(
    cluster: MonitoredCluster,
) -> None:
    """In its old lists everything would expire. Without another auth they count, and the cluster says so."""
    cluster.standin.change("settings", agent_ttl_seconds=4.0)
    cluster.standin.change("agents", kind="node", count=4)
    cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 4})
    auth_id = cluster.standin.ready["auths"][0]["id"]
    cluster.standin.change(f"auths/{auth_id}", backend="failed")
    cluster.poll()
    assert (
        f"the auth at {cluster.standin.auth_address(1)} reports that it is not ready" in cluster.read_notice()
    )
    # The address of the auth without backend is still the first one.
    cluster.row.auths = [cluster.standin.auth_address(1), cluster.standin.auth_address(2)]
    cluster.row.save()
    cluster.poll_until(lambda table: _states(table)[State.HEALTHY] == 2 and _states(table).total() == 4)
    time_of_expiry = time.time() + 5
    cluster.poll_until(lambda table: time.time() > time_of_expiry and _states(table)[State.HEALTHY] == 2)
    assert cluster.read_notice() == ""


def test_missing_tunnels_are_counted_and_a_killed_proxy_does_not_respond(cluster: MonitoredCluster) -> None:
    """The agents are not named, so their verdicts stay."""
    cluster.enter_diag_addresses()
    cluster.standin.change("agents", kind="node", count=6)
    cluster.standin.change("agents", kind="app_server", count=2)
    cluster.poll_until(_has_polls)
    proxy_id = cluster.standin.ready["proxies"][1]["id"]
    before = dict(_instance(cluster.poll(), proxy_id).facts.connection_counts)
    cluster.standin.change(f"proxies/{proxy_id}", missing_tunnels={"node": 2})
    table = cluster.poll_until(lambda table: _instance(table, proxy_id).facts.missing_tunnel_count == 2)
    assert dict(_instance(table, proxy_id).facts.connection_counts) == before | {"node": before["node"] - 2}
    assert _states(table) == {State.HEALTHY: 8}
    cluster.standin.change(f"proxies/{proxy_id}", running=False)
    table = cluster.poll_until(lambda table: _instance(table, proxy_id).state is InstanceState.SILENT)
    assert _instance(table, proxy_id).facts.address == ""
    assert _states(table) == {State.HEALTHY: 8}
    cluster.standin.change(f"proxies/{proxy_id}", running=True, missing_tunnels={"node": 0})
    table = cluster.poll_until(lambda table: _instance(table, proxy_id).facts.missing_tunnel_count == 0)
    assert _instance(table, proxy_id).state is InstanceState.OK


def test_removed_diag_addresses_leave_heartbeats(cluster: MonitoredCluster) -> None:
    """An instance that did not respond is judged by its resource again."""
    proxy_id = cluster.standin.ready["proxies"][0]["id"]
    cluster.row.diag_addresses = {proxy_id: "127.0.0.1:1"}
    cluster.row.save()
    cluster.poll_until(lambda table: _instance(table, proxy_id).state is InstanceState.SILENT)
    cluster.row.diag_addresses = {}
    cluster.row.save()
    cluster.poll()
    facts = _instance(cluster.poll(), proxy_id).facts
    assert (facts.diag_address, facts.poll_address) == ("", "")
    assert "no diag addresses" in cluster.read_missing()[Capability.HEALTH]


def test_bad_clusters_disturb_no_other(
    cluster: MonitoredCluster, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One whose auth accepts connections only, one whose lists never end, and one that lies, in the same worker."""
    settings.REFLOAT_ROUND_DEADLINE = 1.0
    cluster.standin.change("agents", kind="node", count=6)
    with (
        socket.create_server(("127.0.0.1", 0)) as frozen_auth,
        teleport_cluster(tmp_path_factory.mktemp("endless")) as endless,
        teleport_cluster(tmp_path_factory.mktemp("lying")) as lying,
    ):
        endless.change("settings", endless_pages=True)
        endless.change("agents", kind="node", count=50)
        lies = ["far-expiry", "negative-expiry", "duplicate-names", "long-labels", "markup"]
        lying.change("settings", lies=lies)
        for name, address, standin in (
            ("a-frozen", f"127.0.0.1:{frozen_auth.getsockname()[1]}", endless),
            ("b-endless", endless.auth_address(1), endless),
            ("c-lying", lying.auth_address(1), lying),
        ):
            identity = {"identity": str(standin.identity)}
            Cluster.objects.create(
                id=name, source="teleport", auths=[address], tls_source=TLSSource.IDENTITY, tls_files=identity
            )
        cluster.poll_until(lambda table: _states(table) == {State.HEALTHY: 6})
        for _ in range(3):
            table = cluster.poll()
            assert _states(table) == {State.HEALTHY: 6}
            assert not table.stale


def test_each_missing_verb_is_a_reason(cluster: MonitoredCluster) -> None:
    """And hides only what needs it."""
    cluster.standin.change("agents", kind="node", count=2)
    cluster.standin.change("settings", rules={"node": ["list", "read"]})
    table = cluster.poll()
    assert _states(table) == {State.HEALTHY: 2}
    reasons = cluster.read_missing()
    assert "list and read for instance" in reasons[Capability.AGENT_TO_AUTH]
    assert "list and read for" in reasons[Capability.INSTANCES]
    assert Capability.WATCH not in reasons
    cluster.standin.change("settings", rules=None)
    cluster.standin.change("watches", drop="*")
    cluster.poll_until(lambda _: Capability.AGENT_TO_AUTH not in cluster.read_missing())


def test_older_version_lists_its_instances_by_http(cluster: MonitoredCluster) -> None:
    """PresenceService got its lists in December 2025."""
    cluster.standin.change("settings", missing=_PRESENCE_LISTS)
    table = cluster.poll()
    kinds = Counter(view.facts.kind for view in table.instances.values())
    assert kinds == {InstanceKind.AUTH: 2, InstanceKind.PROXY: 2}


def test_identity_file_is_ca_certificate_and_key(cluster: MonitoredCluster) -> None:
    """One file has all three, also for the HTTP API."""
    cluster.row.tls_files = dict.fromkeys(cluster.row.tls_files, str(cluster.standin.identity))
    cluster.row.save()
    cluster.standin.change("agents", kind="node", count=2)
    cluster.standin.change("settings", missing=_PRESENCE_LISTS)
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
    """And counts the instances that are ready."""
    cluster.standin.change("agents", kind="node", count=2)
    row = cluster.row
    steps = {
        step.name: step
        async for step in run_connection_test(
            AddressKind.STATIC, row.auths, tls_files_of(row), "teleport", cluster.diag_addresses()
        )
    }
    # The certificates of the stand-in expire tomorrow.
    assert steps.pop(StepName.TLS).verdict is StepVerdict.WARNING
    verdicts = {name: (step.verdict, step.text) for name, step in steps.items()}
    assert {verdict for verdict, _ in verdicts.values()} == {StepVerdict.OK}, verdicts
    assert "Teleport 18.1.0" in steps[StepName.IDENTITY].text
    assert steps[StepName.INSTANCES].text == "2 auths and 2 proxies."
    assert steps[StepName.READYZ].text == "4 instances ready."
