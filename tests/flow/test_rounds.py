"""Beat and a worker as processes of their own, polling instances in this one: what happens when Redis or they die."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from fleet.domain.verdicts import State
from fleet.management import programs
from fleet.processes import children, valkey
from fleet.state import StateUnavailable
from fleet.state.reader import Reader, open_reader
from fleet.wire import fleet_pb2
from tests.fakes.instances import FakeAuth, FakeProxy, agent_entry
from tests.fakes.waiting import eventually_sync

AGENTS = 6
#: A round is given enough for a machine that does other things: an instance that answers late is taken for sick.
INTERVAL, DEADLINE = 1.0, 0.9


class Console:
    """A Valkey, a beat and a worker over fake instances."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = valkey.free_port()
        self.redis = self.start_redis()
        self.auth = FakeAuth("auth-1-id", "auth-1")
        self.proxies = [FakeProxy(f"proxy-{n}-id", f"proxy-{n}") for n in (1, 2)]
        self.auth.agents = self.agents
        for number, proxy in enumerate(self.proxies):
            members = [f"agent-{n}" for n in range(AGENTS) if n % 2 == number]
            proxy.tunnels = tunnels_of(members)
        self.list_all()
        self.env = {
            **os.environ,
            "REFLOAT_HOME": str(home),
            "REFLOAT_PREFIX": "flow",
            "REDIS_URL": self.redis.url,
            "REFLOAT_AUTHS": self.auth.address,
            "REFLOAT_ROUND_INTERVAL": str(INTERVAL),
            "REFLOAT_ROUND_DEADLINE": str(DEADLINE),
        }
        self.env.pop("DATABASE_URL", None)
        subprocess.run(
            [sys.executable, "manage.py", "prepare"], env=self.env, check=True, stdout=subprocess.DEVNULL
        )
        self.reader = open_reader(self.redis.url, "flow")
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for program in (programs.worker("polls", "polls,actions"), programs.beat(home / "beat")):
            self.start(program)

    def start(self, program: programs.Program) -> None:
        """Start one of the console's programs."""
        with (self.home / f"{program.name}.log").open("ab") as log:
            self.running[program.name] = children.spawn(program.argv, env=self.env, log=log)

    def list_all(self) -> None:
        """Let the auth list everybody, for a long time."""
        expires_at = time.time() + 3600
        self.auth.auths = [self.auth.resource(expires_at, "60s")]
        self.auth.proxies = [proxy.resource(expires_at, "60s") for proxy in self.proxies]

    def agents(self, request: fleet_pb2.ListAgentsRequest) -> fleet_pb2.ListAgentsResponse:
        """Every agent, whenever the asker has not got them."""
        full = request.epoch != "agents"
        entries = [agent_entry(f"agent-{n}-id", "auth-1-id", expires_in=3600) for n in range(AGENTS)]
        return fleet_pb2.ListAgentsResponse(
            epoch="agents", revision=1, full=full, agents=entries if full else []
        )

    def start_redis(self) -> valkey.Valkey:
        """Start an empty Redis, always on the same port."""
        return valkey.start(self.home / "valkey", port=self.port, persist=False)

    def counts(self) -> Mapping[str, int]:
        """Agents by state, those with none left out; empty while Redis is down."""
        try:
            counts = self.reader.summary("default", time.time()).counts
        except StateUnavailable:
            return {}
        return {state.slug: count for state, count in counts.items() if count}

    def await_counts(self, wanted: Mapping[str, int], *, within: float = 120.0) -> None:
        """Wait until it reads so."""
        eventually_sync(lambda: self.counts() == wanted, seconds=within)

    def transitions(self) -> list[tuple[str, str, str, str]]:
        """(agent, old, new, cause) in the database, oldest first."""
        with sqlite3.connect(self.home / "refloat.sqlite3") as database:
            query = "SELECT agent, old, new, cause FROM fleet_transition ORDER BY at, id"
            return list(database.execute(query))

    def stop(self) -> None:
        """End everything."""
        children.stop(self.running.values())
        self.redis.stop()
        for instance in (self.auth, *self.proxies):
            instance.stop()


def tunnels_of(members: list[str]) -> Callable[[fleet_pb2.ListTunnelsRequest], fleet_pb2.ListTunnelsResponse]:
    """A feed with a tunnel of each agent."""

    def answer(request: fleet_pb2.ListTunnelsRequest) -> fleet_pb2.ListTunnelsResponse:
        full = request.epoch != "tunnels"
        entries = [fleet_pb2.TunnelEntry(agent_id=f"{m}-id", agent_name=m, open_for_ms=1000) for m in members]
        return fleet_pb2.ListTunnelsResponse(
            epoch="tunnels", revision=1, full=full, tunnels=entries if full else []
        )

    return answer


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One for all tests here; each leaves it healthy."""
    made = Console(tmp_path_factory.mktemp("console"))
    yield made
    made.stop()


def test_fleet_is_found_and_judged(console: Console) -> None:
    """From the address of one auth to a verdict on every agent, in a few rounds, none of it stranded on the way."""
    console.await_counts({"healthy": AGENTS})
    assert not [row for row in console.transitions() if row[2] in {"stranded", "offline"}]


def test_held_proxy_strands_its_agents_and_is_their_cause(console: Console) -> None:
    """Only its own; with a transition each; and they come back when it does."""
    console.await_counts({"healthy": AGENTS})
    console.proxies[1].held.set()
    try:
        console.await_counts({"healthy": AGENTS // 2, "stranded": AGENTS // 2})
    finally:
        console.proxies[1].held.clear()
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


def test_redis_restarts_empty(console: Console) -> None:
    """Worker and beat outlive it; the record is made anew, with everybody at their old place."""
    console.await_counts({"healthy": AGENTS})
    before = console.reader.layout("default")
    console.redis.process.send_signal(signal.SIGKILL)
    console.redis.process.wait()
    eventually_sync(lambda: not console.counts())
    console.redis = console.start_redis()
    console.await_counts({"healthy": AGENTS})
    after = console.reader.layout("default")
    assert all(process.poll() is None for process in console.running.values())
    assert after.version != before.version
    assert (after.ids, after.homes, after.blocks) == (before.ids, before.homes, before.blocks)


def test_pollers_killed(console: Console) -> None:
    """What is read grows too old: unknown, never stranded. (The clock is handed on, not waited for.)"""
    console.await_counts({"healthy": AGENTS})
    worker = console.running["worker-polls"]
    worker.kill()
    worker.wait()
    reader: Reader = console.reader
    as_of = reader.summary("default", time.time()).as_of or 0.0
    assert reader.summary("default", as_of + 9.5).counts[State.HEALTHY] == AGENTS
    old = reader.summary("default", as_of + 10.5)
    assert old.stale
    assert old.counts[State.UNKNOWN] == AGENTS
    console.start(programs.worker("polls", "polls,actions"))
    eventually_sync(lambda: (reader.summary("default", 0.0).as_of or 0.0) > as_of, seconds=120)
