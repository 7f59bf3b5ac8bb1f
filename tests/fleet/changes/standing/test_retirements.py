"""Retired agents: the database has the last word, and the record follows it, whatever became of it meanwhile."""

from __future__ import annotations

import time

import pytest
import redis
from django.contrib.auth.models import User

from fleet.changes.standing import retirements
from fleet.changes.standing.retirements import RetireRequest
from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster
from fleet.models.inventory import Agent
from fleet.monitoring.columns import RETIRED
from fleet.monitoring.history.store import load_record_seed
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.verdicts import State
from tests.fakes.record import fill
from tests.fleet.changes.conftest import NOW, by


@pytest.fixture
def writer(valkey_url: str, prefix: str) -> Writer:
    made = Writer(redis.Redis.from_url(valkey_url), prefix)
    fill(made, [State.HEALTHY, State.OFFLINE, State.OFFLINE], as_of=time.time())
    return made


def wanted(user: User, writer: Writer, index: int, *, retired: bool = True) -> RetireRequest:
    ids, names = writer.agent_ids("default")
    return RetireRequest(ids[index], names[index], index, retired, "scrapped", by(user))


def marked(writer: Writer) -> list[int]:
    return [index for index, row in enumerate(writer.memory("default")) if row["flags"] & RETIRED]


def test_record_follows_and_the_log_says_who(cluster: Cluster, alice: User, writer: Writer) -> None:
    """Of one that the database had not heard of; asked twice it is said twice and done once; and back again."""
    assert retirements.record_retire_request("default", wanted(alice, writer, 1), lambda: NOW)
    assert not retirements.record_retire_request("default", wanted(alice, writer, 1), lambda: NOW)
    assert retirements.sync_record(writer, "default") == 1
    assert marked(writer) == [1]
    assert retirements.sync_record(writer, "default") == 0

    assert retirements.record_retire_request("default", wanted(alice, writer, 1, retired=False), lambda: NOW)
    assert retirements.sync_record(writer, "default") == 1

    assert marked(writer) == []
    entries = AuditEntry.objects.order_by("pk").values_list("action", "before", "after", "reason")
    assert [(action, before["retired"], after["retired"]) for action, before, after, _ in entries] == [
        ("agent.retire", False, True),
        ("agent.retire", True, True),
        ("agent.unretire", True, False),
    ]


def test_new_record_begins_with_them(cluster: Cluster, alice: User, writer: Writer) -> None:
    """Redis may forget; while there is no record there is nothing to do."""
    retirements.record_retire_request("default", wanted(alice, writer, 2), lambda: NOW)
    for key in writer.redis.scan_iter(f"{writer.prefix}:*"):
        writer.redis.delete(key)
    assert retirements.sync_record(writer, "default") == 0
    assert load_record_seed("default").memory["flags"].tolist() == [RETIRED]


def test_agents_are_told_apart_by_their_ids(cluster: Cluster, alice: User, writer: Writer) -> None:
    """The database may have closed a gap that the record has still."""
    retirements.record_retire_request("default", wanted(alice, writer, 2), lambda: NOW)
    Agent.objects.update(position=0)
    retirements.sync_record(writer, "default")
    assert marked(writer) == [2]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("scrapped", ""),
        ("no", "3 to 200"),
        ("x" * 201, "3 to 200"),
        ("   ", "3 to 200"),
        ("a\x01bc", "printable"),
    ],
)
def test_reason_is_needed(reason: str, said: str) -> None:
    """One that can be shown."""
    assert said in retirements.problem_of(reason)
    assert bool(said) == bool(retirements.problem_of(reason))
