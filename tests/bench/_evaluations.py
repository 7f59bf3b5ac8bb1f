"""CPU of the incident evaluation over a large fleet, with the checkout that is first in PYTHONPATH: one JSON object.

It imports nothing from tests/, so that the benchmark `alerts` can run it with another commit.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from fleet.monitoring import columns
from fleet.monitoring.evidence import FleetEvidence
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceState, PollAttempt, ServingStatus
from fleet.vocabulary.verdicts import Recovery, State, VerdictSentences

#: Evaluations that are not counted: the first after a change does more work.
_WARM_UP = 5


def set_up_django(home: str) -> None:
    """Create a database in that folder."""
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
    """Return an evaluator with an open incident for each silent proxy, all of them notified."""
    from fleet.alerts.evaluator import Evaluator
    from fleet.models.clusters import Cluster, ensure_default_cluster
    from fleet.models.incidents import Incident

    # This also deletes the lease and the clock of the evaluator of the previous size.
    Cluster.objects.all().delete()
    Incident.objects.all().delete()
    ensure_default_cluster()
    reader: Any = fleet
    evaluator = Evaluator(reader, "bench")
    for _ in range(3):
        evaluator.evaluate_cluster("default", fleet.tick())
    # Longer than the hold time of any rule and the delay of the first notification.
    fleet.now += 120.0
    for _ in range(2):
        evaluator.evaluate_cluster("default", fleet.tick())
    assert Incident.objects.filter(state="firing").count() == incidents, "every proxy strands its agents"
    return evaluator


def main(agents: int, incidents: int, repeats: int) -> dict[str, float]:
    """Return milliseconds of CPU of one evaluation: of an unchanged round, of a new round without changes, and of a
    round that changes every incident."""
    fleet = Fleet(agents, incidents)
    evaluator = open_incidents(fleet, incidents)
    # The rule that waits for ten minutes is over by then, too.
    fleet.now += 900.0

    def median_cpu_ms(*, alternating: bool = False, new_rounds: bool = True) -> float:
        durations = []
        for _ in range(_WARM_UP + repeats):
            # What the record costs is not counted.
            now = fleet.tick(alternating=alternating, new_round=new_rounds)
            start = time.process_time()
            evaluator.evaluate_cluster("default", now)
            durations.append((time.process_time() - start) * 1000)
        return statistics.median(durations[_WARM_UP:])

    return {
        "old_round": median_cpu_ms(new_rounds=False),
        "same": median_cpu_ms(),
        "all_changing": median_cpu_ms(alternating=True),
    }


class Fleet:
    """A reader of a fleet whose every proxy is silent and strands its agents."""

    def __init__(self, agents: int, proxies: int) -> None:
        self.now = self._start = time.time()
        self._agents, self._proxies = agents, proxies
        self._tick_parity = 0
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
        self._table = self._build_table(self.now)

    def tick(self, *, alternating: bool = False, new_round: bool = True) -> float:
        """Advance the clock by a second and conclude a round, with one agent more or less at each proxy."""
        self.now += 1.0
        self._tick_parity += alternating
        if new_round:
            self._table = self._build_table(self.now)
        return self.now

    def table(self, cluster: str, now: float) -> FleetTable:
        """See Reader."""
        return self._table

    def expiring_identity(self, cluster: str, now: float) -> None:
        """Return None: no identity expires."""

    def agent(self, table: FleetTable, index: int) -> Any:
        """See Reader."""
        return SimpleNamespace(
            verdict=SimpleNamespace(
                sentences=VerdictSentences(f"proxy-{index % self._proxies} does not answer.")
            )
        )

    def _build_table(self, now: float) -> FleetTable:
        rows = np.zeros(self._agents, columns.VERDICT)
        rows["cause"] = np.arange(self._agents) % self._proxies
        rows["state"] = State.STRANDED
        if self._tick_parity % 2:
            rows["state"][: self._proxies] = State.HEALTHY
        rows["since"], rows["recovers_at"] = self._start - 600, self._start + 86_400
        rows["reason_and_recovery"] = Recovery.BY_ITSELF << columns.RECOVERY_SHIFT
        views = {
            n: InstanceView(
                facts,
                InstanceState.OK if n == self._proxies else InstanceState.SILENT,
                "does not answer",
                100,
                {},
            )
            for n, facts in self._facts.items()
        }
        return FleetTable(
            cluster="default", epoch="e", seq=int(now), as_of=now, stale=False, ids=self._ids, names=self._names,
            instances=views, heartbeats=columns.blank_heartbeats(self._agents),
            memory=columns.blank_memory(self._agents),
            verdicts=rows, places=columns.blank_places(self._agents),
            tunnel_agents=np.zeros(0, np.uint32), tunnel_proxies=np.zeros(0, np.uint16),
            fleet=FleetEvidence(cluster="default", instances={}),
        )  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        set_up_django(folder)
        print(json.dumps(main(*(int(size) for size in sys.argv[1:]))))
