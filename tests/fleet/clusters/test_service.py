"""Clusters are added, edited, paused and removed, with audit log entries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings
from redis import Redis

from fleet.audit import CONSOLE_ACTOR
from fleet.clusters.record_removal import delete_keys_at
from fleet.clusters.service import (
    ClusterChangedError,
    ClusterError,
    ClusterValues,
    create_cluster,
    list_notified_channels,
    remove_cluster,
    set_paused,
    update_cluster,
    values_of,
    version_of,
)
from fleet.models.access import ClusterLimit
from fleet.models.alerting import Channel, Delivery, Silence
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster, ensure_default_cluster, has_fixed_addresses
from fleet.models.incidents import Incident
from fleet.models.sealed_secrets import unseal
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.keys import Keys
from fleet.vocabulary.changes import ChangeKind, ChangeState
from tests.fleet.clusters.pem_files import create_pem_files

pytestmark = pytest.mark.django_db

_VALUES = ClusterValues("Europe", auths=["auth-1.eu.example:3025"])


def _delete_keys(cluster: str) -> None:
    delete_keys_at(settings.REDIS_URL, settings.REFLOAT_PREFIX, cluster)


def _entries() -> list[tuple[str, str, str]]:
    return [(row.action, row.outcome, row.subject) for row in AuditEntry.objects.order_by("pk")]


def test_create_update_pause_and_resume_are_stored_and_in_the_audit_log() -> None:
    """With the values before and after."""
    row = create_cluster("eu", _VALUES, CONSOLE_ACTOR)
    row = update_cluster(row, replace(_VALUES, name="Europe 2", production=True), CONSOLE_ACTOR)
    assert set_paused(row, True, CONSOLE_ACTOR).is_paused
    assert not set_paused(row, False, CONSOLE_ACTOR).is_paused

    row = Cluster.objects.get(pk="eu")
    assert (row.name, row.auths, row.production) == ("Europe 2", ["auth-1.eu.example:3025"], True)
    assert _entries() == [
        ("cluster.create", "succeeded", "Europe"),
        ("cluster.update", "succeeded", "Europe"),
        ("cluster.pause", "succeeded", "Europe 2"),
        ("cluster.resume", "succeeded", "Europe 2"),
    ]
    entry = AuditEntry.objects.get(action="cluster.update")
    assert (entry.before["name"], entry.after["name"], entry.cluster) == ("Europe", "Europe 2", "eu")


def test_refused_values_are_in_the_audit_log_and_nothing_is_stored() -> None:
    """Also an id that no column can hold."""
    with pytest.raises(ClusterError) as caught:
        create_cluster("E" * 300, replace(_VALUES, name=""), CONSOLE_ACTOR)
    assert set(caught.value.problems) == {"cluster_id", "name"}
    assert not Cluster.objects.exists()
    assert [row.outcome for row in AuditEntry.objects.all()] == ["refused"]


def test_id_name_and_address_of_another_cluster_are_refused() -> None:
    """Two clusters with one auth would be one fleet that counts twice."""
    create_cluster("eu", _VALUES, CONSOLE_ACTOR)
    with pytest.raises(ClusterError) as caught:
        create_cluster("eu", replace(_VALUES, name="US", auths=["us:1"]), CONSOLE_ACTOR)
    assert list(caught.value.problems) == ["cluster_id"]
    with pytest.raises(ClusterError) as caught:
        create_cluster("us", replace(_VALUES, name="europe"), CONSOLE_ACTOR)
    assert caught.value.problems["auths"].startswith(
        "auth-1.eu.example:3025 already belongs to the cluster Europe."
    )
    assert "already has this name" in caught.value.problems["name"]


def test_addresses_may_only_be_missing_in_the_default_cluster() -> None:
    """It cannot be removed, so it is emptied."""
    row = ensure_default_cluster(["auth-1:3025"])
    assert update_cluster(row, replace(values_of(row), auths=[]), CONSOLE_ACTOR).auths == []
    with pytest.raises(ClusterError, match="at least one address"):
        create_cluster("eu", replace(_VALUES, auths=[]), CONSOLE_ACTOR)


def test_addresses_of_the_setting_are_not_edited(settings: Settings) -> None:
    """The next start would set them again; all other values may change."""
    settings.REFLOAT_AUTHS = ["auth-1:3025"]
    row = ensure_default_cluster()
    assert has_fixed_addresses("default")
    assert not has_fixed_addresses("eu")
    with pytest.raises(ClusterError) as caught:
        update_cluster(row, replace(values_of(row), auths=["auth-2:3025"]), CONSOLE_ACTOR)
    assert "REFLOAT_AUTHS" in caught.value.problems["auths"]
    with pytest.raises(ClusterError):
        update_cluster(row, replace(values_of(row), address_kind="dns"), CONSOLE_ACTOR)
    assert update_cluster(row, replace(values_of(row), name="Main"), CONSOLE_ACTOR).name == "Main"


def test_uploads_are_sealed_kept_replaced_and_removed(tmp_path: Path) -> None:
    """They are in no audit entry, and another source of TLS files deletes them."""
    pem = create_pem_files(tmp_path)
    uploads = {"authority": pem.authority, "certificate": pem.certificate, "key": pem.key}
    values = replace(_VALUES, tls_source="uploaded", tls_uploads=uploads)
    row = create_cluster("eu", values, CONSOLE_ACTOR)
    assert "BEGIN" not in row.tls_secrets
    assert unseal(row.tls_secrets) == uploads

    row = update_cluster(row, replace(values_of(row), name="EU"), CONSOLE_ACTOR)
    assert unseal(row.tls_secrets) == uploads
    with pytest.raises(ClusterError) as caught:
        update_cluster(row, replace(values_of(row), tls_uploads={"key": pem.other_key}), CONSOLE_ACTOR)
    assert "another certificate" in caught.value.problems["tls_uploads.key"]
    new_pair = {"certificate": pem.other_certificate, "key": pem.other_key, "authority": None}
    row = update_cluster(row, replace(values_of(row), tls_uploads=new_pair), CONSOLE_ACTOR)
    assert unseal(row.tls_secrets) == uploads | {"certificate": pem.other_certificate, "key": pem.other_key}
    row = update_cluster(
        row, replace(values_of(row), tls_uploads={"certificate": "", "key": ""}), CONSOLE_ACTOR
    )
    assert unseal(row.tls_secrets) == {"authority": pem.authority}
    assert AuditEntry.objects.filter(after__uploaded_files="replaced").count() == 2

    row = update_cluster(row, replace(values_of(row), tls_source="none"), CONSOLE_ACTOR)
    assert row.tls_secrets == ""
    assert "PRIVATE" not in str(list(AuditEntry.objects.values()))


def test_uploads_of_another_secret_key_must_be_uploaded_again(tmp_path: Path, settings: Settings) -> None:
    """The refusal says so, and new files are accepted."""
    pem = create_pem_files(tmp_path)
    values = replace(_VALUES, tls_source="uploaded", tls_uploads={"authority": pem.authority})
    row = create_cluster("eu", values, CONSOLE_ACTOR)
    settings.SECRET_KEY = "another"
    with pytest.raises(ClusterError) as caught:
        update_cluster(row, values_of(row), CONSOLE_ACTOR)
    assert "another REFLOAT_SECRET_KEY" in caught.value.problems["tls_uploads"]
    assert unseal(update_cluster(row, values, CONSOLE_ACTOR).tls_secrets) == {"authority": pem.authority}


def test_change_of_an_old_version_is_refused() -> None:
    """Nobody overwrites what somebody else saved meanwhile."""
    row = create_cluster("eu", _VALUES, CONSOLE_ACTOR)
    seen_version = version_of(row)
    update_cluster(row, replace(_VALUES, name="EU"), CONSOLE_ACTOR, seen_version=seen_version)
    with pytest.raises(ClusterChangedError):
        update_cluster(row, _VALUES, CONSOLE_ACTOR, seen_version=seen_version)


@pytest.fixture
def live_redis(redis: Redis, valkey_url: str, prefix: str, settings: Settings) -> Redis:
    """The Redis of the settings."""
    settings.REDIS_URL, settings.REFLOAT_PREFIX = valkey_url, prefix
    return redis


def test_removed_cluster_leaves_nothing_but_its_audit_log(live_redis: Redis, prefix: str) -> None:
    """Other clusters and objects of the whole installation stay; so do limits, which would widen without it."""
    row = create_cluster("eu", _VALUES, CONSOLE_ACTOR)
    ensure_default_cluster(["auth-1:3025"])
    for cluster in ("eu", "default"):
        live_redis.set(Keys(prefix, cluster).epoch, "1")
        channel = Channel.objects.create(name="ops", kind="webhook", cluster=cluster)
        Delivery.objects.create(
            channel=channel,
            cluster=cluster,
            key="k",
            kind="digest",
            payload={},
            created_at=1,
            next_attempt_at=1,
        )
        Silence.objects.create(cluster=cluster, reason="r", creator="c", starts_at=1, ends_at=2)
    user = User.objects.create_user("limited")
    ClusterLimit.objects.create(user=user, cluster="eu")

    remove_cluster(row, "Europe", CONSOLE_ACTOR, _delete_keys)

    assert [cluster.pk for cluster in Cluster.objects.all()] == ["default"]
    for model in (Channel, Delivery, Silence):
        assert list(model.objects.values_list("cluster", flat=True)) == ["default"]
    assert not live_redis.exists(Keys(prefix, "eu").epoch)
    assert live_redis.exists(Keys(prefix, "default").epoch)
    assert ClusterLimit.objects.exists()
    entry = AuditEntry.objects.get(action="cluster.remove")
    assert (entry.outcome, entry.cluster, entry.before["name"]) == ("succeeded", "", "Europe")
    with pytest.raises(ClusterChangedError):
        set_paused(row, True, CONSOLE_ACTOR)


@pytest.mark.parametrize(
    ("state", "sent_at", "names"),
    [("firing", 2.0, ["ops"]), ("recovering", 2.0, ["ops"]), ("firing", None, []), ("resolved", 2.0, [])],
)
def test_channels_that_know_of_an_unresolved_incident(
    state: str, sent_at: float | None, names: list[str]
) -> None:
    """They get no resolved notification once the cluster is removed."""
    row = create_cluster("eu", _VALUES, CONSOLE_ACTOR)
    incident = Incident.objects.create(
        cluster=row,
        key="proxy/p1",
        cause_kind="proxy",
        cause_id="p1",
        cause_name="proxy-1",
        generation=1,
        state=state,
        severity=1,
        opened_at=1.0,
    )
    channel = Channel.objects.create(name="ops", kind="pagerduty")
    Delivery.objects.create(
        channel=channel, incident=incident, key="k", kind="firing", payload={},
        created_at=1, next_attempt_at=1, sent_at=sent_at,
    )  # fmt: skip

    assert list_notified_channels("eu") == names


def test_removal_that_is_refused(live_redis: Redis, prefix: str) -> None:
    """Another name, the default cluster, and a change that has not ended."""
    row = create_cluster("eu", _VALUES, CONSOLE_ACTOR)
    live_redis.set(Keys(prefix, "eu").epoch, "1")
    with pytest.raises(ClusterError, match="Enter the name of the cluster, Europe"):
        remove_cluster(row, "eu", CONSOLE_ACTOR, _delete_keys)
    default_row = ensure_default_cluster()
    with pytest.raises(ClusterError, match="cannot be removed"):
        remove_cluster(default_row, default_row.name, CONSOLE_ACTOR, _delete_keys)
    change = Change.objects.create(
        cluster=row,
        kind=ChangeKind.RECONNECT,
        title="Reconnect 3 agents",
        state=ChangeState.RUNNING,
        created_at=timezone.now(),
    )
    with pytest.raises(ClusterError, match=rf"Change {change.pk} \(Reconnect 3 agents\) has not ended"):
        remove_cluster(row, "Europe", CONSOLE_ACTOR, _delete_keys)
    assert Cluster.objects.count() == 2
    assert live_redis.exists(Keys(prefix, "eu").epoch)


def test_removal_without_redis_removes_nothing(settings: Settings) -> None:
    """It can be repeated when Redis responds again."""
    row = create_cluster("eu", _VALUES, CONSOLE_ACTOR)
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with pytest.raises(StateUnavailableError):
        remove_cluster(row, "Europe", CONSOLE_ACTOR, _delete_keys)
    assert Cluster.objects.filter(pk="eu").exists()
    assert AuditEntry.objects.get(action="cluster.remove").outcome == "failed"
