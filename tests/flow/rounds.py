"""A real Valkey, beat and worker, over instances in this process whose responses a test sets."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from fleet.management import programs
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.reader import open_reader
from fleet.processes import children, valkey
from fleet.vocabulary.verdicts import State
from fleet.wire import fleet_pb2
from tests.fakes.instances import FakeAuth, FakeProxy, agent_entry
from tests.fakes.waiting import eventually_sync

AGENTS = 6
#: A round is given enough for a machine that does other things: an instance that answers late is taken for sick.
INTERVAL, DEADLINE = 1.0, 0.9


class Console:
    """A Valkey, a beat and a worker over fake instances."""

    def __init__(self, home: Path, *, auths: int = 1, proxies: int = 2) -> None:
        self.home = home
        self.port = valkey.find_free_port()
        self.redis = self.start_redis()
        self.auths = [FakeAuth(f"auth-{n}-id", f"auth-{n}") for n in range(1, auths + 1)]
        self.auth = self.auths[0]
        self.proxies = [FakeProxy(f"proxy-{n}-id", f"proxy-{n}") for n in range(1, proxies + 1)]
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
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start_polling(self) -> None:
        """Start the programs that make rounds."""
        for program in (
            programs.create_worker_program("polls", "polls,actions"),
            programs.create_beat_program(self.home / "beat"),
        ):
            self.start(program)

    def start(self, program: programs.Program) -> None:
        """Start one of the console's programs."""
        with (self.home / f"{program.name}.log").open("ab") as log:
            self.processes[program.name] = children.spawn(program.argv, env=self.env, log=log)

    def list_all(self) -> None:
        """Let every auth list all instances, with distant expiry."""
        expires_at = time.time() + 3600
        for auth in self.auths:
            auth.auths = [instance.resource(expires_at, "60s") for instance in self.auths]
            auth.proxies = [proxy.resource(expires_at, "60s") for proxy in self.proxies]

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
        except StateUnavailableError:
            return {}
        return {state.slug: count for state, count in counts.items() if count}

    def await_counts(self, expected: Mapping[str, int], *, within: float = 120.0) -> None:
        """Wait until it reads so."""
        eventually_sync(lambda: self.counts() == expected, seconds=within)

    def transitions(self) -> list[tuple[str, str, str, str]]:
        """(agent, old, new, cause) in the database, oldest first."""
        with sqlite3.connect(self.home / "refloat.sqlite3") as database:
            query = """
                SELECT agent.agent_id, old, new, coalesce(instance.instance_id, '') FROM fleet_agentchange AS change
                JOIN fleet_agent AS agent ON agent.id = change.agent_id
                LEFT JOIN fleet_instance AS instance ON instance.id = cause
                WHERE old <> new ORDER BY at
            """
            rows = database.execute(query)
            return [(agent, State(old).slug, State(new).slug, cause) for agent, old, new, cause in rows]

    def stop(self) -> None:
        """End everything."""
        children.stop(self.processes.values())
        self.redis.stop()
        for instance in (*self.auths, *self.proxies):
            instance.stop()


def tunnels_of(
    members: list[str], epoch: str = "tunnels"
) -> Callable[[fleet_pb2.ListTunnelsRequest], fleet_pb2.ListTunnelsResponse]:
    """A feed with a tunnel of each agent."""

    def answer(request: fleet_pb2.ListTunnelsRequest) -> fleet_pb2.ListTunnelsResponse:
        full = request.epoch != epoch
        entries = [fleet_pb2.TunnelEntry(agent_id=f"{m}-id", agent_name=m, open_for_ms=1000) for m in members]
        return fleet_pb2.ListTunnelsResponse(
            epoch=epoch, revision=1, full=full, tunnels=entries if full else []
        )

    return answer
