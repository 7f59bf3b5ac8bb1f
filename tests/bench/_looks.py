"""CPU of looks for incidents over a large fleet, of whatever checkout is first in PYTHONPATH: one JSON object.

It imports nothing of tests/, so that the bench `alerts` runs it over another commit as well.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

import numpy as np

from fleet.monitoring import columns
from fleet.monitoring.evidence import FleetEvidence
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceState, PollAttempt, ServingStatus
from fleet.vocabulary.verdicts import Recovery, State

#: Looks that are not counted: the first after a change is one that finds out.
_WARM_UP = 5


def set_up_django(home: str) -> None:
    """Make a database of our own in that folder."""
    os.environ |= {
        "REFLOAT_HOME": home,
        "DATABASE_URL": "",
        "DJANGO_SETTINGS_MODULE": "dashboards.config.settings",
    }
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def open_incidents(fleet: Fleet, incidents: int) -> Any:
    """Return an evaluator that has an open incident for each sick proxy, and has told of all of them."""
    from fleet.alerts.evaluator import Evaluator
    from fleet.models.clusters import Cluster, ensure_default_cluster
    from fleet.models.incidents import Incident

    # With it go the lease and the clock of the evaluator of another size.
    Cluster.objects.all().delete()
    Incident.objects.all().delete()
    ensure_default_cluster()
    reader: Any = fleet
    evaluator = Evaluator(reader, "bench")
    for _ in range(3):
        evaluator.evaluate_cluster("default", fleet.tick())
    # Longer than any rule wants it to hold, and than the first message waits.
    fleet.now += 120.0
    for _ in range(2):
        evaluator.evaluate_cluster("default", fleet.tick())
    assert Incident.objects.filter(state="firing").count() == incidents, "every proxy strands its agents"
    return evaluator


def main(agents: int, incidents: int, repeats: int) -> dict[str, float]:
    """Return milliseconds of CPU of a look: of the round before, of a new one that changed nothing, of one that changed
    every incident."""
    fleet = Fleet(agents, incidents)
    evaluator = open_incidents(fleet, incidents)
    # The rule that waits for ten minutes is over by then, too.
    fleet.now += 900.0

    def median_ms(*, moving: bool = False, concluded: bool = True) -> float:
        taken = []
        for _ in range(_WARM_UP + repeats):
            # What the record costs is not counted.
            now = fleet.tick(moving=moving, concluded=concluded)
            began = time.process_time()
            evaluator.look("default", now)
            taken.append((time.process_time() - began) * 1000)
        return statistics.median(taken[_WARM_UP:])

    return {
        "old_round": median_ms(concluded=False),
        "same": median_ms(),
        "all_changing": median_ms(moving=True),
    }


class Fleet:
    """A reader of a fleet whose every proxy is silent and strands its agents."""

    def __init__(self, agents: int, proxies: int) -> None:
        self.now = self._began = time.time()
        self._agents, self._proxies = agents, proxies
        self._moved = 0
        self._ids = tuple(f"id-{n}" for n in range(agents))
        self._names = tuple(f"agent-{n}" for n in range(agents))
        self._facts = {
            n: InstanceFacts(
                id=f"p{n}", index=n, kind=InstanceKind.PROXY, name=f"proxy-{n}", address="127.0.0.1:1", ttl=10.0,
                attempts=(PollAttempt(self.now, ok=n == proxies), PollAttempt(self.now, ok=n == proxies)),
                serving=ServingStatus.SERVING,
            )
            for n in range(proxies + 1)
        }  # fmt: skip
        self._table = self._concluded(self.now)

    def tick(self, *, moving: bool = False, concluded: bool = True) -> float:
        """Let a second pass, and a round conclude; with one agent more or less at each proxy."""
        self.now += 1.0
        self._moved += moving
        if concluded:
            self._table = self._concluded(self.now)
        return self.now

    def table(self, cluster: str, now: float) -> FleetTable:
        """See Reader."""
        return self._table

    def _concluded(self, now: float) -> FleetTable:
        rows = np.zeros(self._agents, columns.VERDICT)
        rows["cause"] = np.arange(self._agents) % self._proxies
        rows["state"] = State.STRANDED
        if self._moved % 2:
            rows["state"][: self._proxies] = State.HEALTHY
        rows["since"], rows["recovers_at"] = self._began - 600, self._began + 86_400
        rows["packed"] = Recovery.BY_ITSELF << columns.RECOVERY_SHIFT
        views = {
            n: InstanceView(
                one,
                InstanceState.OK if n == self._proxies else InstanceState.SILENT,
                "does not answer",
                100,
                {},
            )
            for n, one in self._facts.items()
        }
        return FleetTable(
            cluster="default", epoch="e", seq=int(now), as_of=now, stale=False, ids=self._ids, names=self._names,
            instances=views, heartbeats=columns.empty_heartbeats(self._agents),
            memory=columns.empty_memory(self._agents),
            verdicts=rows, tunnel_agents=np.zeros(0, np.uint32), tunnel_proxies=np.zeros(0, np.uint16),
            fleet=FleetEvidence(cluster="default", instances={}),
        )  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        set_up_django(folder)
        print(json.dumps(main(*(int(word) for word in sys.argv[1:]))))
