"""Retired agents: the record follows the database."""

from __future__ import annotations

import time

import pytest
import redis
from django.contrib.auth.models import User
from pytest_django import DjangoAssertNumQueries

from fleet.changes.operations import retirements
from fleet.changes.operations.retirements import RetireTarget
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.models.inventory import Agent
from fleet.monitoring.columns import RETIRED
from fleet.monitoring.history.store import load_record_seed
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.verdicts import State
from tests.fakes.record import fill
from tests.fleet.changes.conftest import NOW, actor_of


@pytest.fixture
def writer(valkey_url: str, prefix: str) -> Writer:
    new_writer = Writer(redis.Redis.from_url(valkey_url), prefix)
    fill(new_writer, [State.HEALTHY, State.OFFLINE, State.OFFLINE], as_of=time.time())
    return new_writer


def request_retirement(user: User, writer: Writer, *indices: int, is_retired: bool = True) -> Change | None:
    """Retire or reinstate agents by their index."""
    ids, names = writer.agent_ids_and_names("default")
    targets = [RetireTarget(ids[index], names[index], index) for index in indices]
    return retirements.request_retirement(
        "default", targets, actor_of(user), "scrapped", lambda: NOW, is_retired=is_retired
    )


def retired_indices(writer: Writer) -> list[int]:
    return [index for index, row in enumerate(writer.memory("default")) if row["flags"] & RETIRED]


def test_record_follows_the_database_and_requests_are_logged(
    cluster: Cluster, alice: User, writer: Writer
) -> None:
    """A repeated request is logged but changes nothing."""
    assert request_retirement(alice, writer, 1) is not None
    assert request_retirement(alice, writer, 1) is None
    assert retirements.copy_to_record(writer, "default") == 1
    assert retired_indices(writer) == [1]
    assert retirements.copy_to_record(writer, "default") == 0

    assert request_retirement(alice, writer, 1, is_retired=False) is not None
    assert retirements.copy_to_record(writer, "default") == 1

    assert retired_indices(writer) == []
    entries = AuditEntry.objects.order_by("pk").values_list("action", "before", "after", "reason")
    assert [(action, before["is_retired"], after["is_retired"]) for action, before, after, _ in entries] == [
        ("agent.retire", False, True),
        ("agent.retire", True, True),
        ("agent.reinstate", True, False),
    ]


def test_several_agents_are_one_change(cluster: Cluster, alice: User, writer: Writer) -> None:
    """Each agent has its own audit entry; agents that are retired already are not part of the change."""
    request_retirement(alice, writer, 0)
    change = request_retirement(alice, writer, 0, 1, 2)
    assert change is not None
    assert (change.kind, change.state, change.title, change.affected_count) == (
        "retire",
        ChangeState.VERIFYING,
        "Retire 2 agents",
        2,
    )
    ids, names = writer.agent_ids_and_names("default")
    assert [target.agent for target in retirements.targets_of(change)] == list(ids[1:3])
    entries = AuditEntry.objects.filter(change_id=change.pk)
    assert sorted(entry.subject for entry in entries) == sorted(names)[1:]
    assert {entry.request_id for entry in entries} == {"req-1"}


def test_ten_thousand_agents_take_few_statements(
    cluster: Cluster, alice: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    """In batches, of which SQLite needs more than other databases."""
    targets = [RetireTarget(f"agent-{n}", f"agent-{n}", n) for n in range(10_000)]
    with django_assert_max_num_queries(400):
        retirements.request_retirement(
            "default", targets, actor_of(alice), "scrapped", lambda: NOW, is_retired=True
        )
    assert Agent.objects.filter(is_retired=True).count() == 10_000
    assert AuditEntry.objects.count() == 10_000


def test_new_record_contains_retired_agents(cluster: Cluster, alice: User, writer: Writer) -> None:
    """Redis may lose the record; without a record nothing is synced."""
    request_retirement(alice, writer, 2)
    for key in writer.redis.scan_iter(f"{writer.prefix}:*"):
        writer.redis.delete(key)
    assert retirements.copy_to_record(writer, "default") == 0
    assert load_record_seed("default").memory["flags"].tolist() == [RETIRED]


def test_retired_agents_are_matched_by_id(cluster: Cluster, alice: User, writer: Writer) -> None:
    """Positions in the database and in the record may differ."""
    request_retirement(alice, writer, 2)
    Agent.objects.update(position=0)
    retirements.copy_to_record(writer, "default")
    assert retired_indices(writer) == [2]


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("scrapped", ""),
        ("no", "3 to 200"),
        ("x" * 201, "3 to 200"),
        ("   ", "3 to 200"),
        ("a\x01bc", "printable"),
    ],
)
def test_invalid_reason_is_an_error(reason: str, error: str) -> None:
    """Length and characters are checked."""
    assert error in retirements.problem_of(reason)
    assert bool(error) == bool(retirements.problem_of(reason))
