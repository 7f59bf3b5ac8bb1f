"""Rounds of several clusters in one worker: their own TLS files, paused and removed clusters."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from dashboards.config.celery import app
from fleet import tasks
from fleet.models import Cluster
from fleet.models.sealed_secrets import seal
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.reader import Reader, open_reader
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.clusters import TLSSource
from fleet.wire import fleet_pb2
from tests.fakes.faulty_certificates import FaultyCertificates
from tests.fakes.instances import FakeAuth, agent_entry

pytestmark = pytest.mark.django_db

PARTS = ("authority", "certificate", "key")


class Clusters:
    """The auths of clusters by id, each with a CA of its own, and the files of Refloat for them."""

    def __init__(self, folder: Path, reader: Reader) -> None:
        self.folder = folder
        self.certificates = FaultyCertificates(folder)
        self.reader = reader
        self.auths: dict[str, FakeAuth] = {}

    def add(self, cluster: str) -> FakeAuth:
        """Start an auth that requires a client certificate of the cluster's CA, and has one agent."""
        auth = FakeAuth(
            f"auth-{cluster}", f"auth-{cluster}", self.certificates.of("auth", "auth", ca=f"ca-{cluster}")
        )
        auth.auths = [auth.resource(time.time() + 600)]
        auth.agents = lambda request: fleet_pb2.ListAgentsResponse(
            epoch="e",
            revision=1,
            full=request.epoch != "e",
            agents=[agent_entry(f"agent-{cluster}", auth.id, expires_in=600)],
        )
        self.auths[cluster] = auth
        return auth

    def console_files(self, cluster: str, name: str = "console") -> TLSFiles:
        """Return Refloat's files for a cluster."""
        return self.certificates.of(name, "console", ca=f"ca-{cluster}")

    def poll(self, rounds: int = 1) -> None:
        """Run rounds of all clusters."""
        for _ in range(rounds):
            tasks.start_round()

    def as_of(self, cluster: str) -> float | None:
        """Return the time of a cluster's newest round."""
        return self.reader.summary(cluster, time.time()).as_of

    def polled_at(self, cluster: str) -> float:
        """Return when the auth of a cluster was last asked."""
        [view] = self.reader.table(cluster, time.time()).instances.values()
        return view.facts.attempts[0].at

    def responds(self, cluster: str) -> bool:
        """Return whether the newest attempt to reach the auth of a cluster succeeded."""
        [view] = self.reader.table(cluster, time.time()).instances.values()
        return not view.facts.attempts[0].error


@pytest.fixture
def clusters(settings: Settings, valkey_url: str, prefix: str, tmp_path: Path) -> Iterator[Clusters]:
    """No cluster yet; tasks run where they are enqueued."""
    settings.REDIS_URL, settings.REFLOAT_PREFIX = valkey_url, prefix
    settings.REFLOAT_ROUND_INTERVAL, settings.REFLOAT_ROUND_DEADLINE = 0.001, 60.0
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    app.conf.task_always_eager = app.conf.task_eager_propagates = True
    tasks.get_worker_resources.cache_clear()
    all_clusters = Clusters(tmp_path, open_reader(valkey_url, prefix))
    yield all_clusters
    tasks.get_worker_resources().worker.close()
    tasks.get_worker_resources.cache_clear()
    app.conf.task_always_eager = app.conf.task_eager_propagates = False
    for auth in all_clusters.auths.values():
        auth.stop()


def paths_of(files: TLSFiles) -> dict[str, str]:
    """Return the paths as a row has them."""
    return {part: str(getattr(files, part)) for part in PARTS}


def contents_of(files: TLSFiles) -> dict[str, str]:
    """Return the PEM as an upload has it."""
    return {part: Path(path).read_text() for part, path in paths_of(files).items()}


def add_two_clusters(clusters: Clusters) -> None:
    """Add `east` with files and `west` with uploads."""
    for cluster in ("east", "west"):
        clusters.add(cluster)
    Cluster.objects.create(
        id="east",
        auths=[clusters.auths["east"].address],
        tls_source=TLSSource.FILES,
        tls_files=paths_of(clusters.console_files("east")),
    )
    Cluster.objects.create(
        id="west",
        auths=[clusters.auths["west"].address],
        tls_source=TLSSource.UPLOADED,
        tls_secrets=seal(contents_of(clusters.console_files("west"))),
    )


def test_one_worker_polls_clusters_of_different_authorities(clusters: Clusters) -> None:
    add_two_clusters(clusters)
    clusters.poll(3)
    assert clusters.responds("east")
    assert clusters.responds("west")
    assert [clusters.reader.summary(name, time.time()).agent_count for name in ("east", "west")] == [1, 1]


def test_changed_certificate_is_used_in_the_next_round(clusters: Clusters) -> None:
    """First a certificate of another CA, which the auth refuses, then one of its own CA again."""
    add_two_clusters(clusters)
    clusters.poll(3)
    own_files, other_files = clusters.console_files("east"), clusters.console_files("other")
    used_files = {part: clusters.folder / f"used-{part}.pem" for part in PARTS}
    for part, path in used_files.items():
        shutil.copy(paths_of(own_files)[part], path)
    Cluster.objects.filter(id="east").update(tls_files={part: str(p) for part, p in used_files.items()})
    clusters.poll(1)
    assert clusters.responds("east")
    for part in ("certificate", "key"):
        shutil.copy(paths_of(other_files)[part], used_files[part])
    clusters.poll(1)
    assert not clusters.responds("east")
    assert clusters.responds("west")
    for part in ("certificate", "key"):
        shutil.copy(paths_of(own_files)[part], used_files[part])
    clusters.poll(1)
    assert clusters.responds("east")


def test_half_replaced_certificate_keeps_the_connections(clusters: Clusters) -> None:
    """Renewal replaces certificate and key one after the other; a round between the two loses nothing."""
    add_two_clusters(clusters)
    used_files = {
        part: shutil.copy(path, clusters.folder / f"used-{part}.pem")
        for part, path in paths_of(clusters.console_files("east")).items()
    }
    Cluster.objects.filter(id="east").update(tls_files={part: str(p) for part, p in used_files.items()})
    clusters.poll(3)
    renewed_files = clusters.console_files("east", "renewed")
    shutil.copy(paths_of(renewed_files)["certificate"], used_files["certificate"])
    clusters.poll(1)
    assert clusters.responds("east")
    shutil.copy(paths_of(renewed_files)["key"], used_files["key"])
    clusters.poll(1)
    assert clusters.responds("east")


def test_new_upload_is_used_in_the_next_round(clusters: Clusters) -> None:
    add_two_clusters(clusters)
    clusters.poll(3)
    Cluster.objects.filter(id="west").update(tls_secrets=seal(contents_of(clusters.console_files("other"))))
    clusters.poll(1)
    assert not clusters.responds("west")
    Cluster.objects.filter(id="west").update(
        tls_secrets=seal(contents_of(clusters.console_files("west", "renewed")))
    )
    clusters.poll(1)
    assert clusters.responds("west")


@pytest.mark.parametrize("fault", ["missing file", "not PEM", "another secret key", "no files"])
def test_unusable_files_disturb_no_other_cluster(clusters: Clusters, fault: str) -> None:
    """The cluster is not connected to without TLS either, and its agents do not become stranded."""
    add_two_clusters(clusters)
    clusters.poll(3)
    broken_path = clusters.folder / "broken.pem"
    changes = {
        "missing file": {"tls_files": {"authority": str(broken_path)}},
        "not PEM": {"tls_files": {"authority": str(broken_path)}},
        "another secret key": {"tls_source": TLSSource.UPLOADED, "tls_secrets": "x"},
        "no files": {"tls_files": {}},
    }[fault]
    if fault == "not PEM":
        broken_path.write_text("nothing")
    Cluster.objects.filter(id="east").update(**changes)
    call_count = len(clusters.auths["east"].calls)
    clusters.poll(3)
    assert len(clusters.auths["east"].calls) == call_count
    assert not clusters.responds("east")
    assert clusters.responds("west")


def test_slow_cluster_is_polled_after_the_others(clusters: Clusters) -> None:
    """A cluster that uses up its deadline delays nobody: a round would not have time for many of them."""
    add_two_clusters(clusters)
    clusters.poll(1)
    order, now = tasks.get_worker_resources().poll_order, time.monotonic()
    # Tasks run where they are enqueued here: the shard that `start_round` polls itself comes last.
    order.note("east", now - 60.0, now)
    clusters.poll(1)
    assert clusters.polled_at("east") < clusters.polled_at("west")
    order.note("west", now - 60.0, now)
    order.note("east", now, now)
    clusters.poll(1)
    assert clusters.polled_at("west") < clusters.polled_at("east")


def test_paused_cluster_is_not_polled(clusters: Clusters) -> None:
    add_two_clusters(clusters)
    clusters.poll(3)
    Cluster.objects.filter(id="east").update(is_paused=True)
    as_of = {name: clusters.as_of(name) for name in ("east", "west")}
    call_count = len(clusters.auths["east"].calls)
    clusters.poll(2)
    tasks.read_policies()
    tasks.poll_shard("east", 1, 0, [0], True, [clusters.auths["east"].address])
    assert clusters.as_of("east") == as_of["east"]
    assert clusters.as_of("west") != as_of["west"]
    assert len(clusters.auths["east"].calls) == call_count
    Cluster.objects.filter(id="east").update(is_paused=False)
    clusters.poll(1)
    assert clusters.as_of("east") != as_of["east"]
    assert clusters.responds("east")


def test_removed_cluster_is_not_polled_and_its_record_does_not_come_back(
    clusters: Clusters, valkey_url: str
) -> None:
    add_two_clusters(clusters)
    clusters.poll(3)
    cluster = Cluster.objects.get(id="east")
    Cluster.objects.filter(id="east").delete()
    tasks.poll_shard("east", 1, 0, [0], True, cluster.auths)
    resources = tasks.get_worker_resources()
    keys = resources.writer.keys("east")
    connect(valkey_url).delete(*keys.record_keys)
    number = int(time.time() * 1000) + 1_000_000
    assert tasks._start_round(cluster, number, time.time()) == []
    assert resources.writer.epoch("east") is None
    clusters.poll(1)
    assert clusters.responds("west")


def test_a_cluster_whose_source_is_not_installed_is_not_polled(clusters: Clusters) -> None:
    """Its data gets out of date; nothing crashes, and other clusters are polled."""
    add_two_clusters(clusters)
    clusters.poll(3)
    Cluster.objects.filter(id="east").update(source="gone")
    as_of = {name: clusters.as_of(name) for name in ("east", "west")}
    call_count = len(clusters.auths["east"].calls)
    clusters.poll(2)
    tasks.read_policies()
    tasks.look_after_networking()
    tasks.poll_shard("east", 1, 0, [0], True, [clusters.auths["east"].address])
    assert clusters.as_of("east") == as_of["east"]
    assert clusters.as_of("west") != as_of["west"]
    assert len(clusters.auths["east"].calls) == call_count
