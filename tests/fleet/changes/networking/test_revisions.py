from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from django.contrib.auth.models import User

from fleet.changes import ChangeRefusedError, NoEvidenceError, engine
from fleet.changes.kinds import kind_of
from fleet.changes.networking import revisions
from fleet.changes.networking.revisions import NetworkingConflictError
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.protocol.networking.config import ORIGIN_LABEL, NetworkingConfig, NetworkingResource, Strategy
from fleet.vocabulary.changes import ChangeState
from tests.fakes.reader import FakeReader
from tests.fakes.step_contexts import InMemoryReader, record_snapshot_of
from tests.fleet.changes.conftest import NOW, actor_of

PEERING = NetworkingConfig(tunnel_strategy=str(Strategy.PROXY_PEERING), agent_connection_count=1)


@pytest.fixture
def read(cluster: Cluster) -> None:
    """Record that the config was read."""
    revisions.record_revision(cluster.pk, NetworkingResource(PEERING, {}, "r1"), NOW)


def _plan(user: User, config: NetworkingConfig, base: str = "r1") -> Change:
    return revisions.plan_change(
        "default", base, config, actor_of(user), NOW, record_snapshot_of(FakeReader(), NOW.timestamp())
    )


@pytest.mark.usefixtures("read")
def test_plan_of_a_stale_revision_raises_a_conflict(alice: User) -> None:
    """No change is created; the audit row contains the desired config."""
    revisions.record_revision(
        "default", NetworkingResource(replace(PEERING, web_idle_timeout=60.0), {}, "r2"), NOW
    )
    with pytest.raises(NetworkingConflictError) as conflict:
        _plan(alice, replace(PEERING, keep_alive_count_max=7))
    assert conflict.value.stored_revision.revision == "r2"
    entry = AuditEntry.objects.get(outcome="refused")
    assert entry.after["keep_alive_count_max"] == 7
    assert not Change.objects.exists()


@pytest.mark.usefixtures("read")
@pytest.mark.parametrize(
    ("config", "field"),
    [
        (replace(PEERING, keep_alive_interval=-1.0), "keep_alive_interval"),
        (replace(PEERING, agent_connection_count=101), "tunnel_strategy.agent_connection_count"),
        (replace(PEERING, idle_timeout_message="x" * 1025), "idle_timeout_message"),
    ],
)
def test_plan_with_invalid_values_names_the_field(alice: User, config: NetworkingConfig, field: str) -> None:
    """No change is created."""
    with pytest.raises(ChangeRefusedError) as refusal:
        _plan(alice, config)
    assert set(refusal.value.problems) == {field}
    assert not Change.objects.exists()


@pytest.mark.usefixtures("read")
def test_plan_that_moves_tunnels_is_refused_without_current_data(alice: User) -> None:
    """Other fields can be changed."""
    with pytest.raises(NoEvidenceError):
        _plan(alice, replace(PEERING, graceful_tunnel_closing=True))
    assert _plan(alice, replace(PEERING, keep_alive_count_max=7)).title == "Set keep alive count max to 7"


def test_plan_of_a_config_managed_by_a_file_is_refused(cluster: Cluster, alice: User) -> None:
    """The next start of an auth would restore it."""
    revisions.record_revision(
        cluster.pk, NetworkingResource(PEERING, {ORIGIN_LABEL: "config-file"}, "r1"), NOW
    )
    with pytest.raises(ChangeRefusedError, match="managed by the config file of the auths"):
        _plan(alice, replace(PEERING, keep_alive_count_max=7))


def test_plan_before_the_config_was_read_is_refused(cluster: Cluster, alice: User) -> None:
    """The error contains the read error."""
    revisions.record_read_error(cluster.pk, "no auth is known")
    with pytest.raises(ChangeRefusedError, match="no auth is known"):
        _plan(alice, PEERING)


@pytest.mark.usefixtures("read")
def test_plan_without_changes_is_refused(alice: User) -> None:
    """The same config is no change."""
    with pytest.raises(ChangeRefusedError, match="no changes"):
        _plan(alice, PEERING)


@pytest.mark.usefixtures("read")
def test_verify_compares_until_the_closing_window_ends(alice: User) -> None:
    """The detail then contains the difference."""
    reader = FakeReader(as_of=NOW.timestamp())
    table = reader.table("default", NOW.timestamp())
    record = record_snapshot_of(reader, NOW.timestamp())
    change = revisions.plan_change(
        "default", "r1", replace(PEERING, graceful_tunnel_closing=True), actor_of(alice), NOW, record
    )
    engine.confirm(change, actor_of(alice), reason="a test", typed_name="", now=NOW)
    engine.start(change, NOW)
    engine.transition(change, ChangeState.VERIFYING, NOW)
    # As if two agents had had two tunnels when it was planned.
    plan = {**change.plan, "closing_tunnel_counts": {"id-0": 2, "id-1": 2}}
    plan["closing"] = {**plan["closing"], "closing_count": [3, 3], "steps": [{"latest_seconds": 10.0}]}
    engine.update_change(change, plan=plan)
    revisions.verify(change, table, NOW)
    assert (change.state, change.outcome["closed_count"], change.outcome["difference"]) == (
        "verifying",
        2,
        -1,
    )
    revisions.verify(change, replace(table, stale=True), NOW + timedelta(hours=1))
    assert change.state == ChangeState.VERIFYING
    revisions.verify(change, table, NOW + timedelta(hours=1))
    assert (change.state, change.detail) == ("verified", "2 tunnels closed, 3 expected")


@pytest.mark.usefixtures("read")
def test_verify_waits_for_opened_tunnels(alice: User) -> None:
    """The change is verified when the tunnels are open."""
    reader = FakeReader(as_of=NOW.timestamp())
    table = reader.table("default", NOW.timestamp())
    table.heartbeats["desired_count"] = 1
    record = record_snapshot_of(InMemoryReader(lambda _: table), NOW.timestamp())
    change = revisions.plan_change(
        "default", "r1", replace(PEERING, agent_connection_count=2), actor_of(alice), NOW, record
    )
    engine.confirm(change, actor_of(alice), reason="a test", typed_name="", now=NOW)
    engine.start(change, NOW)
    engine.transition(change, ChangeState.VERIFYING, NOW)
    revisions.verify(change, table, NOW)
    assert (change.state, change.outcome["opened_count"], change.outcome["expected_opened_count"]) == (
        "verifying",
        0,
        4,
    )
    assert kind_of(change).progress_of(change, NOW.timestamp())["percent"] == 0
    doubled_table = replace(
        table,
        tunnel_agents=np.concatenate([table.tunnel_agents, table.tunnel_agents]),
        tunnel_proxies=np.concatenate([table.tunnel_proxies, 5 - table.tunnel_proxies]),
    )
    revisions.verify(change, doubled_table, NOW)
    assert (change.state, change.detail) == ("verified", "4 tunnels opened, as expected")
