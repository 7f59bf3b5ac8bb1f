"""A worker of campaigns as a process of its own, over a simulated fleet that outlives it: `python -m` this WORD.

`prepare N`, `work`, `pause`, `resume`. REFLOAT_HOME has the database; the fleet's own book is `fleet.sqlite3` beside
it: agents, who was asked how often, and what proxies remember. A step is a second of the campaign's clock.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import time
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import django
import numpy as np

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")
django.setup()

from django.core.management import call_command  # noqa: E402 - Django first

from fleet.control import campaigns, campaigns_run, changes  # noqa: E402
from fleet.control.campaigns import Chosen  # noqa: E402
from fleet.control.changes import By  # noqa: E402
from fleet.domain.campaign import Pace  # noqa: E402
from fleet.domain.changes import Actor, ActorKind  # noqa: E402
from fleet.models.changes import Change, ClusterLease  # noqa: E402
from fleet.models.clusters import Cluster  # noqa: E402
from fleet.transport.admin import Advised  # noqa: E402
from tests.fakes.movers import Movers  # noqa: E402

_PROXIES = 3
_BY = By(Actor(ActorKind.PERSON, "tester"))
_PACE = Pace(rate=15_000, per_proxy=5_000, canaries=5, hold=1, jitter=1, patience=5, max_failed=3)


class Fleet:
    """The simulated fleet's book."""

    def __init__(self) -> None:
        self.book = sqlite3.connect(Path(os.environ["REFLOAT_HOME"]) / "fleet.sqlite3", isolation_level=None)

    def make(self, count: int) -> None:
        """Agents on proxies, one tunnel each; of the last half every fourth stays."""
        self.book.execute("create table agents (id text primary key, proxy int, stubborn int, fewest int)")
        self.book.execute("create table asked (id text primary key, times int)")
        self.book.execute("begin")
        rows = [(f"agent-{n}", n % _PROXIES, int(n > count // 2 and n % 4 == 0), 1) for n in range(count)]
        self.book.executemany("insert into agents values (?, ?, ?, ?)", rows)
        self.book.execute("commit")

    def movers(self) -> Movers:
        """As the pollers see it."""
        rows = self.book.execute("select id, proxy from agents order by rowid").fetchall()
        return Movers({one: {proxy} for one, proxy in rows}, _PROXIES)

    def advise(self, proxy_id: str, advisory_id: str, reason: str, agents: Collection[str]) -> Advised:
        """As a proxy does: under one id nobody who is still there is advised twice."""
        proxy, fresh, absent = int(proxy_id.removeprefix("proxy-")), 0, []
        self.book.execute("begin immediate")
        for one in agents:
            at, stubborn = self.book.execute(
                "select proxy, stubborn from agents where id = ?", (one,)
            ).fetchone()
            if at != proxy:
                absent.append(one)
                continue
            if stubborn and self.book.execute("select 1 from asked where id = ?", (one,)).fetchone():
                continue
            fresh += 1
            self.book.execute(
                "insert into asked values (?, 1) on conflict (id) do update set times = times + 1", (one,)
            )
            if not stubborn:
                self.book.execute("update agents set proxy = ? where id = ?", ((proxy + 1) % _PROXIES, one))
        self.book.execute("commit")
        return Advised(proxy_id, fresh, 0, 0, len(absent), 0, (), tuple(absent))

    def look(self, proxy_id: str, advisory_id: str, agents: Collection[str]) -> Advised:
        """Nobody answers that it stays."""
        return Advised(proxy_id, 0, 0, 0, 0, 0)


def prepare(count: int) -> None:
    """A database with a confirmed campaign."""
    call_command("migrate", verbosity=0)
    fleet = Fleet()
    fleet.make(count)
    Cluster.objects.create(id="default", name="Default")
    now = time.time()
    change = campaigns.plan(
        "default",
        fleet.movers().table(now),
        Chosen(np.arange(count), "all"),
        _PACE,
        _BY,
        _moment(now),
        _halves,
    )
    changes.confirm(change, _BY, reason="to try", typed="default", now=_moment(now))


def work() -> None:
    """Step after step, on a clock that goes on where the last worker's ended, and faster than ours."""
    fleet = Fleet()
    change = Change.objects.get()
    now = float(change.progress.get("stepped_at", change.created_at.timestamp()))
    # A killed worker's lease must expire on that clock, too.
    ClusterLease.objects.update(expires_at=_moment(now))
    clock = [now]
    while True:
        clock[0] += 1
        campaigns_run.step(
            change,
            lambda: fleet.movers().table(clock[0]),
            fleet,
            lambda: clock[0],
            random.random,
            f"worker {os.getpid()}",
        )
        change.refresh_from_db()
        time.sleep(0.01)


def _halves(order: list[int]) -> None:
    """Those that move come first, so that there is something to kill before the threshold is met."""
    half = len(order) // 2
    first, last = order[:half], order[half:]
    random.shuffle(first)
    random.shuffle(last)
    order[:] = first + last


def _moment(now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC)


def main() -> None:
    """Do what the command line says."""
    match sys.argv[1:]:
        case ["prepare", count]:
            prepare(int(count))
        case ["work"]:
            work()
        case ["pause"]:
            campaigns.pause(Change.objects.get(), _BY, datetime.now(UTC))
        case ["resume"]:
            campaigns.resume(Change.objects.get(), _BY, datetime.now(UTC))
        case said:
            sys.exit(f"what is {said}?")


if __name__ == "__main__":
    main()
