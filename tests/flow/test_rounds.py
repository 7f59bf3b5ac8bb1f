"""Beat and a worker as processes of their own, polling instances in this one: what happens when Redis or they die."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from fleet.management import programs
from fleet.monitoring.state.reader import Reader
from fleet.vocabulary.verdicts import State
from tests.fakes.waiting import eventually_sync
from tests.flow.producers import Database, produced
from tests.flow.rounds import AGENTS, Console


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One for all tests here; each leaves it healthy."""
    new_console = Console(tmp_path_factory.mktemp("console"))
    new_console.start_polling()
    yield new_console
    new_console.stop()


def test_fleet_is_discovered_and_classified(console: Console) -> None:
    """From the address of one auth to a verdict on every agent, none of them stranded on the way."""
    console.await_counts({"healthy": AGENTS})
    assert not [row for row in console.transitions() if row[2] in {"stranded", "offline"}]


def test_frozen_proxy_strands_its_agents_and_is_their_cause(console: Console) -> None:
    """Only its own; with a transition each; and they come back when it does."""
    console.await_counts({"healthy": AGENTS})
    console.proxies[1].freeze_event.set()
    try:
        console.await_counts({"healthy": AGENTS // 2, "stranded": AGENTS // 2})
    finally:
        console.proxies[1].freeze_event.clear()
    console.await_counts({"healthy": AGENTS})
    fell = [(f"agent-{n}-id", "healthy", "stranded", "proxy-2-id") for n in (1, 3, 5)]
    eventually_sync(lambda: set(fell) <= set(console.transitions()))
    # They may rest on a degraded proxy first: it failed often of late.
    sick = {"stranded", "degraded"}
    eventually_sync(
        lambda: (
            {agent for agent, *_ in fell}
            <= {agent for agent, old, new, _ in console.transitions() if old in sick and new == "healthy"}
        )
    )
    produced(
        Database(console.home),
        verdicts=("healthy", "stranded"),
        reasons=("none", "proxy-unhealthy"),
        recoveries=("not-needed",),
        causes=("proxy",),
        instance_states=("ok", "silent"),
    )


def test_redis_restarts_empty(console: Console) -> None:
    """Worker and beat survive; the record is rebuilt, with every agent at its previous position."""
    console.await_counts({"healthy": AGENTS})
    before = console.reader.table("default", time.time())
    console.redis.process.send_signal(signal.SIGKILL)
    console.redis.process.wait()
    eventually_sync(lambda: not console.counts())
    console.redis = console.start_redis()
    console.await_counts({"healthy": AGENTS})
    after = console.reader.table("default", time.time())
    assert all(process.poll() is None for process in console.processes.values())
    assert after.epoch != before.epoch
    assert after.ids == before.ids
    agents = range(len(before.ids))
    homes_before, homes_after = (
        [console.reader.agent(table, index).home_proxy for index in agents] for table in (before, after)
    )
    assert homes_after == homes_before


def test_pollers_killed(console: Console) -> None:
    """The data becomes too old: agents are unknown, never stranded. (The test sets the clock.)"""
    console.await_counts({"healthy": AGENTS})
    worker = console.processes["worker-polls"]
    worker.kill()
    worker.wait()
    reader: Reader = console.reader
    as_of = reader.summary("default", time.time()).as_of or 0.0
    assert reader.summary("default", as_of + 9.5).counts[State.HEALTHY] == AGENTS
    old = reader.summary("default", as_of + 10.5)
    assert old.stale
    assert old.counts[State.UNKNOWN] == AGENTS
    console.start(programs.create_worker_program("polls", "polls,actions"))
    eventually_sync(lambda: (reader.summary("default", 0.0).as_of or 0.0) > as_of, seconds=120)
