"""Faults of a simulated fleet of three thousand agents, polled by a real console: which notifications are sent.

Waits are shorter than an installation's, by rows of the rules and the flags of the fleet; nothing else is.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet.management import programs
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.reader import open_reader
from fleet.nodes.simulation import program as simulation
from fleet.nodes.simulation.fault_script import parse_fault
from fleet.processes import children, valkey
from fleet.vocabulary.verdicts import State
from tests.fakes.mail import Mailbox, mail_server
from tests.fakes.receivers import Receiver, run_receiver
from tests.fakes.waiting import eventually_sync
from tests.flow.alerting import add_channel, sql
from tests.meta.house import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

AGENTS, PROXIES = 3_000, 15
#: The proxy that is frozen, and the agents on it.
FROZEN, ON_IT = "proxy-7", 207
#: A round is given enough to ask 17 instances on a machine that does other things: who answers late counts as sick.
INTERVAL, DEADLINE = 4.0, 3.0
GROUP_WAIT = 3.0
#: On a machine that does other things too.
_PATIENCE = 300.0
#: Evaluations after the last message, in which no other one may be decided on.
_MORE_EVALUATIONS = 2
#: Rounds that found agents stranded, after a moment.
_STRANDED_SINCE = f"""
select distinct at / 1000.0 as judged from fleet_agentchange where new = {State.STRANDED:d} and judged > ?
"""


@dataclass
class Console:
    """A poller, a beat and the alerting process over a simulated fleet, and two channels."""

    home: Path
    hook: Receiver
    mail: Mailbox
    env: Mapping[str, str]
    redis: valkey.Valkey
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, program: programs.Program) -> None:
        """Start one of the console's programs."""
        with (self.home / f"{program.name}.log").open("ab") as log:
            self.processes[program.name] = children.spawn(program.argv, env=dict(self.env), log=log)

    def prepare(self) -> None:
        """Start the console with two channels; alerting starts when the fleet is known."""
        prepare = [sys.executable, "manage.py", "prepare"]
        subprocess.run(prepare, cwd=ROOT, env=dict(self.env), check=True, stdout=subprocess.DEVNULL)
        sql(self.home, "update fleet_alertrule set group_wait = ?, recover_seconds = 5", GROUP_WAIT)
        add_channel(self.home, "webhook", "url", self.hook.url)
        add_channel(self.home, "email", "to", "ops@example.com")
        for program in (
            programs.create_worker_program("polls", "polls,actions"),
            programs.create_beat_program(self.home / "beat"),
        ):
            self.start(program)
        eventually_sync(lambda: self.counts() == {"healthy": AGENTS}, seconds=_PATIENCE)
        self.start(programs.create_alerts_program())
        clock_query = "select 1 from fleet_alertclock where evaluated_at is not null"
        eventually_sync(lambda: bool(sql(self.home, clock_query)), seconds=_PATIENCE)

    def fault(self, *args: str) -> None:
        """Do something to the fleet."""
        simulated_fleet = simulation.find_running(self.home)
        assert simulated_fleet is not None, "the simulation has ended"
        asyncio.run(simulation.inject_fault(simulated_fleet, parse_fault(" ".join(args))))

    def counts(self) -> Mapping[str, int]:
        """Agents by state, those with none left out; empty while nothing can be read."""
        try:
            counts = open_reader(self.redis.url, "flow").summary("default", time.time()).counts
        except StateUnavailableError:
            return {}
        return {state.slug: count for state, count in counts.items() if count}

    def rounds(self) -> float:
        """When the newest round concluded."""
        return open_reader(self.redis.url, "flow").summary("default", 0.0).as_of or 0.0

    def incidents(self, columns: str = "cause_kind, cause_name, state, peak_count") -> list[Any]:
        """Those that anybody was told of, oldest first."""
        return sql(
            self.home, f"select {columns} from fleet_incident where notification_count > 0 order by id"
        )

    def notifications(self) -> list[tuple[str, str]]:
        """(kind, subject) of what the webhook got."""
        return [(body["kind"], body["subject"]) for body in self.hook.bodies]

    def await_kinds(self, *kinds: str) -> None:
        """Wait until both channels got these messages, and see that the next evaluations decide on no other one.

        What they decide is in the outbox, sent or not. Incidents that are pending, and notified nobody, may stay.
        """
        eventually_sync(
            lambda: len(self.hook.requests) >= len(kinds) and len(self.mail.messages) >= len(kinds),
            seconds=_PATIENCE,
        )
        open_query = "select 1 from fleet_incident where state <> 'resolved' and notification_count > 0"
        eventually_sync(lambda: not sql(self.home, open_query), seconds=_PATIENCE)
        for _ in range(_MORE_EVALUATIONS):
            self._await_evaluation()
        assert len(sql(self.home, "select 1 from fleet_delivery")) == 2 * len(kinds)
        assert [kind for kind, _ in self.notifications()] == list(kinds)
        assert self.mail.subjects == [subject for _, subject in self.notifications()]
        assert len(self.hook.keys) == len(kinds)

    def _await_evaluation(self) -> None:
        query = "select evaluated_at from fleet_alertclock"
        newest = sql(self.home, query)
        eventually_sync(lambda: sql(self.home, query) != newest, seconds=_PATIENCE)


@contextmanager
def _simulated(home: Path, env: Mapping[str, str]) -> Iterator[list[str]]:
    """`refloat fleet simulate` for as long as the block lasts; the addresses of its auths."""
    argv = [
        *(sys.executable, "-m", "fleet.cli", "fleet", "simulate", "--home", str(home), "--json"),
        *("--agents", str(AGENTS), "--proxies", str(PROXIES), "--auths", "2", "--connections", "1"),
        *("--agent-ttl", "30s", "--instance-ttl", "30s", "--seed", "7"),
        *("--homes", f"{FROZEN}={ON_IT}"),
    ]
    with subprocess.Popen(argv, cwd=ROOT, env=dict(env), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["auths"]
        finally:
            process.terminate()
            process.wait(timeout=180)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One for all tests here; each leaves it healthy."""
    home = tmp_path_factory.mktemp("console")
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("REFLOAT_", "DATABASE_"))
    }
    redis = valkey.start(home / "valkey", persist=False)
    with run_receiver() as hook, mail_server() as mail, _simulated(home, env) as auths:
        env |= {
            "REFLOAT_HOME": str(home),
            "REFLOAT_PREFIX": "flow",
            "REDIS_URL": redis.url,
            "REFLOAT_AUTHS": ",".join(auths),
            "REFLOAT_ROUND_INTERVAL": str(INTERVAL),
            "REFLOAT_ROUND_DEADLINE": str(DEADLINE),
            "REFLOAT_EMAIL_HOST": "127.0.0.1",
            "REFLOAT_EMAIL_PORT": str(mail.port),
            "REFLOAT_EMAIL_TLS": "false",
        }
        console = Console(home, hook, mail, env, redis)
        try:
            console.prepare()
            yield console
        finally:
            children.stop(console.processes.values())
            redis.stop()


@pytest.fixture
def console(scene: Console) -> Iterator[Console]:
    """The console with a healthy fleet and no notifications, before and after a test."""
    eventually_sync(lambda: scene.counts() == {"healthy": AGENTS}, seconds=_PATIENCE)
    scene.hook.requests.clear()
    scene.mail.messages.clear()
    sql(scene.home, "delete from fleet_delivery")
    sql(scene.home, "delete from fleet_incidentevent")
    sql(scene.home, "delete from fleet_incident where state = 'resolved'")
    yield scene
    scene.fault("heal", "all")


def test_frozen_proxy_is_one_notification_and_one_resolve(console: Console) -> None:
    """207 of 3,000: seen within two polls, paged after the group wait, and resolved once.

    Both messages say which proxy, how many agents and how long.
    """
    notification_delays: list[float] = []
    newest = console.rounds()
    eventually_sync(lambda: console.rounds() > newest, seconds=_PATIENCE)
    # Between two rounds, so that none is under way that has asked the proxy already.
    console.fault("freeze", FROZEN)
    frozen_at = time.time()

    def paged() -> bool:
        if (newest := console.rounds()) > max(notification_delays, default=frozen_at):
            notification_delays.append(newest)
        return bool(console.hook.requests)

    eventually_sync(paged, seconds=_PATIENCE)
    # The history is written beside the alerts, and may come after them.
    verdict_delays: list[float] = []

    def was_written() -> bool:
        verdict_delays[:] = [at for (at,) in sql(console.home, _STRANDED_SINCE, frozen_at)]
        return bool(verdict_delays)

    eventually_sync(was_written, seconds=_PATIENCE)
    # What a busy machine makes late are rounds; so they are counted. One that asks a frozen proxy lasts until its
    # deadline, so what concluded sooner had asked before.
    assert sum(frozen_at + DEADLINE <= at <= min(verdict_delays) + 0.01 for at in notification_delays) <= 2
    ((sent_at, opened_at),) = sql(
        console.home,
        "select min(d.created_at), i.opened_at from fleet_delivery d join fleet_incident i on i.id = d.incident_id"
        " where i.cause_name = ? and i.severity = 2",
        FROZEN,
    )
    assert datetime.fromisoformat(sent_at) - datetime.fromisoformat(opened_at) >= timedelta(
        seconds=GROUP_WAIT
    )
    stranded_counts = {"healthy": AGENTS - ON_IT, "stranded": ON_IT}
    eventually_sync(lambda: console.counts() == stranded_counts, seconds=_PATIENCE)
    console.fault("resume", FROZEN)
    console.await_kinds("firing", "resolved")
    (_, page), (_, resolve) = console.notifications()
    assert page.startswith(f"CRIT default: {ON_IT} agents stranded since ")
    assert f" because {FROZEN} is not responding" in page
    assert resolve.startswith(f"RESOLVED default: {FROZEN} after ")
    assert resolve.endswith(f" s, peak {ON_IT} agents")
    for body in console.hook.bodies:
        assert body["incident"]["cause"]["name"] == FROZEN
        assert body["incident"]["peak_count"] == ON_IT
        assert body["incident"]["duration_seconds"] > 0
        assert f"peak {ON_IT}" in body["text"]
    assert console.incidents() == [("proxy", FROZEN, "resolved", ON_IT)]


def test_fleet_behind_a_dead_backend_is_one_incident(console: Console) -> None:
    """Every auth, then agents by the thousand: one page of one cause, one resolve."""
    # The weaker is quiet until the stronger is over: it must not be over before the last agent is back.
    sql(console.home, "update fleet_alertrule set recover_seconds = 60 where kind = 'backend'")
    console.fault("block-backend", "auth-*")
    eventually_sync(lambda: console.counts().get("stranded", 0) > AGENTS * 0.9, seconds=_PATIENCE)
    console.fault("heal", "auth-*")
    console.await_kinds("firing", "resolved")
    assert [(kind, name) for kind, name, *_ in console.incidents()] == [
        ("backend", "auth backend of cluster default")
    ]
    ((peak,),) = console.incidents("peak_count")
    assert peak > AGENTS * 0.9
    # Whether the agents are at risk or stranded by then depends on when their heartbeats expire.
    assert "because both auths lost their backend" in console.notifications()[0][1]


def test_killed_pollers_are_one_alert_about_the_console(console: Console) -> None:
    """A proxy fails while no poller runs: one notification on the console, none on agents, one resolve."""
    console.processes["worker-polls"].kill()
    console.processes.pop("worker-polls").wait()
    console.fault("freeze", FROZEN)
    eventually_sync(lambda: bool(console.hook.requests), seconds=_PATIENCE)
    eventually_sync(lambda: console.counts() == {"unknown": AGENTS}, seconds=_PATIENCE)
    console.fault("resume", FROZEN)
    console.start(programs.create_worker_program("polls", "polls,actions"))
    console.await_kinds("firing", "resolved")
    assert [(kind, name) for kind, name, *_ in console.incidents()] == [("console", "Refloat monitoring")]
    assert console.notifications()[0][1].startswith("CRIT default: Refloat monitoring has stopped")
