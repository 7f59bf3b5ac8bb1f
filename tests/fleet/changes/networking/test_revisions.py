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
from tests.fakes.steps import SightOfMoment, record_of
from tests.fleet.changes.conftest import NOW, by

PEERING = NetworkingConfig(tunnel_strategy=str(Strategy.PROXY_PEERING), agent_connection_count=1)


@pytest.fixture
def read(cluster: Cluster) -> None:
    """The config was read."""
    revisions.record_revision(cluster.pk, NetworkingResource(PEERING, {}, "r1"), NOW)


def _plan(user: User, wanted: NetworkingConfig, base: str = "r1") -> Change:
    return revisions.plan_change(
        "default", base, wanted, by(user), NOW, record_of(FakeReader(), NOW.timestamp())
    )


@pytest.mark.usefixtures("read")
def test_plan_of_a_stale_revision_names_theirs(alice: User) -> None:
    """Nothing is planned; the row in the log has what was wanted."""
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
    ("wanted", "field"),
    [
        (replace(PEERING, keep_alive_interval=-1.0), "keep_alive_interval"),
        (replace(PEERING, agent_connection_count=101), "tunnel_strategy.agent_connection_count"),
        (replace(PEERING, idle_timeout_message="x" * 1025), "idle_timeout_message"),
    ],
)
def test_plan_of_wrong_values_names_the_field(alice: User, wanted: NetworkingConfig, field: str) -> None:
    """And nothing is kept but the attempt."""
    with pytest.raises(ChangeRefusedError) as refused:
        _plan(alice, wanted)
    assert set(refused.value.problems) == {field}
    assert not Change.objects.exists()


@pytest.mark.usefixtures("read")
def test_plan_that_moves_tunnels_is_refused_while_blind(alice: User) -> None:
    """Other fields are changed all the same."""
    with pytest.raises(NoEvidenceError):
        _plan(alice, replace(PEERING, graceful_tunnel_closing=True))
    assert _plan(alice, replace(PEERING, keep_alive_count_max=7)).title == "keep_alive_count_max = 7"


def test_plan_of_a_config_that_a_file_owns(cluster: Cluster, alice: User) -> None:
    """It would come back at the next start of an auth."""
    revisions.record_revision(
        cluster.pk, NetworkingResource(PEERING, {ORIGIN_LABEL: "config-file"}, "r1"), NOW
    )
    with pytest.raises(ChangeRefusedError, match="managed by the config file of the auths"):
        _plan(alice, replace(PEERING, keep_alive_count_max=7))


def test_plan_before_it_was_read(cluster: Cluster, alice: User) -> None:
    """The sentence says why it was not."""
    revisions.record_read_error(cluster.pk, "no auth is known")
    with pytest.raises(ChangeRefusedError, match="no auth is known"):
        _plan(alice, PEERING)


@pytest.mark.usefixtures("read")
def test_plan_of_nothing(alice: User) -> None:
    """The same config is no change."""
    with pytest.raises(ChangeRefusedError, match="no changes"):
        _plan(alice, PEERING)


@pytest.mark.usefixtures("read")
def test_verify_compares_until_all_is_over(alice: User) -> None:
    """Closings are counted round by round; when the window is over, the difference is said."""
    reader = FakeReader(as_of=NOW.timestamp())
    table = reader.table("default", NOW.timestamp())
    record = record_of(reader, NOW.timestamp())
    change = revisions.plan_change(
        "default", "r1", replace(PEERING, graceful_tunnel_closing=True), by(alice), NOW, record
    )
    engine.confirm(change, by(alice), reason="a test", typed_name="", now=NOW)
    engine.start(change, NOW)
    engine.transition(change, ChangeState.VERIFYING, NOW)
    # As if two agents had had two tunnels when it was planned.
    plan = {**change.plan, "watched": {"id-0": 2, "id-1": 2}}
    plan["closing"] = {**plan["closing"], "closes": [3, 3], "steps": [{"latest": 10.0}]}
    engine.update_change(change, plan=plan)
    revisions.verify(change, table, NOW)
    assert (change.state, change.outcome["closed"], change.outcome["difference"]) == ("verifying", 2, -1)
    revisions.verify(change, replace(table, stale=True), NOW + timedelta(hours=1))
    assert change.state == ChangeState.VERIFYING
    revisions.verify(change, table, NOW + timedelta(hours=1))
    assert (change.state, change.detail) == ("verified", "2 tunnels closed, expected: 3")


@pytest.mark.usefixtures("read")
def test_verify_waits_for_tunnels_that_are_dialled(alice: User) -> None:
    """More tunnels are wanted and none closes: the change is verified when they are there, not at once."""
    reader = FakeReader(as_of=NOW.timestamp())
    table = reader.table("default", NOW.timestamp())
    table.heartbeats["desired"] = 1
    record = record_of(SightOfMoment(lambda _: table), NOW.timestamp())
    change = revisions.plan_change(
        "default", "r1", replace(PEERING, agent_connection_count=2), by(alice), NOW, record
    )
    engine.confirm(change, by(alice), reason="a test", typed_name="", now=NOW)
    engine.start(change, NOW)
    engine.transition(change, ChangeState.VERIFYING, NOW)
    revisions.verify(change, table, NOW)
    assert (change.state, change.outcome["dialled"], change.outcome["to_dial"]) == ("verifying", 0, 4)
    assert kind_of(change).progress_of(change, NOW.timestamp())["percent"] == 0
    both = replace(
        table,
        tunnel_agents=np.concatenate([table.tunnel_agents, table.tunnel_agents]),
        tunnel_proxies=np.concatenate([table.tunnel_proxies, 5 - table.tunnel_proxies]),
    )
    revisions.verify(change, both, NOW)
    assert (change.state, change.detail) == ("verified", "4 tunnels opened, as expected")
