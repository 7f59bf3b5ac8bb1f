"""Retired agents: the record follows the database."""

from __future__ import annotations

import time

import pytest
import redis
from django.contrib.auth.models import User

from fleet.changes.operations import retirements
from fleet.changes.operations.retirements import RetireRequest
from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster
from fleet.models.inventory import Agent
from fleet.monitoring.columns import RETIRED
from fleet.monitoring.history.store import load_record_seed
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.verdicts import State
from tests.fakes.record import fill
from tests.fleet.changes.conftest import NOW, actor_of


@pytest.fixture
def writer(valkey_url: str, prefix: str) -> Writer:
    new_writer = Writer(redis.Redis.from_url(valkey_url), prefix)
    fill(new_writer, [State.HEALTHY, State.OFFLINE, State.OFFLINE], as_of=time.time())
    return new_writer


def make_request(user: User, writer: Writer, index: int, *, is_retired: bool = True) -> RetireRequest:
    ids, names = writer.agent_ids_and_names("default")
    return RetireRequest(ids[index], names[index], index, is_retired, "scrapped", actor_of(user))


def retired_indices(writer: Writer) -> list[int]:
    return [index for index, row in enumerate(writer.memory("default")) if row["flags"] & RETIRED]


def test_record_follows_the_database_and_requests_are_logged(
    cluster: Cluster, alice: User, writer: Writer
) -> None:
    """A repeated request is logged but changes nothing."""
    assert retirements.record_retire_request("default", make_request(alice, writer, 1), lambda: NOW)
    assert not retirements.record_retire_request("default", make_request(alice, writer, 1), lambda: NOW)
    assert retirements.copy_to_record(writer, "default") == 1
    assert retired_indices(writer) == [1]
    assert retirements.copy_to_record(writer, "default") == 0

    assert retirements.record_retire_request(
        "default", make_request(alice, writer, 1, is_retired=False), lambda: NOW
    )
    assert retirements.copy_to_record(writer, "default") == 1

    assert retired_indices(writer) == []
    entries = AuditEntry.objects.order_by("pk").values_list("action", "before", "after", "reason")
    assert [(action, before["is_retired"], after["is_retired"]) for action, before, after, _ in entries] == [
        ("agent.retire", False, True),
        ("agent.retire", True, True),
        ("agent.reinstate", True, False),
    ]


def test_new_record_contains_retired_agents(cluster: Cluster, alice: User, writer: Writer) -> None:
    """Redis may lose the record; without a record nothing is synced."""
    retirements.record_retire_request("default", make_request(alice, writer, 2), lambda: NOW)
    for key in writer.redis.scan_iter(f"{writer.prefix}:*"):
        writer.redis.delete(key)
    assert retirements.copy_to_record(writer, "default") == 0
    assert load_record_seed("default").memory["flags"].tolist() == [RETIRED]


def test_retired_agents_are_matched_by_id(cluster: Cluster, alice: User, writer: Writer) -> None:
    """Positions in the database and in the record may differ."""
    retirements.record_retire_request("default", make_request(alice, writer, 2), lambda: NOW)
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
