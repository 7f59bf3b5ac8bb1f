"""One look for incidents over 100,000 agents with 1,000 open incidents, in ms, and how it grows with both.

`look` is pure: facts, rules, inhibition, every incident's life. `kept` is the whole look as the process takes it:
reading 1,000 rows, deciding, and writing what changed, in an SQLite of our own.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np

from fleet.domain.evidence import FleetEvidence
from fleet.domain.instances import Attempt, InstanceFacts, InstanceKind, InstanceState, ServingStatus
from fleet.domain.verdicts import Recovery, State
from fleet.domain.views import FleetTable, InstanceView
from tests.bench.measure import Figure, Outcome, Target, median_ms

_AGENTS, _OPEN = 100_000, 1_000
_LIMITS = (
    Target("kept_100000_agents_1000_open_ms", at_most=1000),
    Target("gather_100000_agents_ms", at_most=100),
    Target("look_1000_open_ms", at_most=200),
)


def run(*, quick: bool) -> Outcome:
    """Measure sizes and numbers of incidents; `--quick` a tenth of both."""
    scale = 10 if quick else 1
    repeats = 3 if quick else 7
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        _set_up_django(Path(folder))
        figures: dict[str, Figure] = {}
        for agents, incidents in ((_AGENTS // 10, _OPEN // 10), (_AGENTS, _OPEN // 10), (_AGENTS, _OPEN)):
            figures |= _measure(agents // scale, incidents // scale, repeats)
    if not quick:
        small, large = figures["kept_100000_agents_100_open_ms"], figures["kept_100000_agents_1000_open_ms"]
        figures["growth_10_times_the_incidents"] = round(float(large) / float(small), 2)
        before = figures["kept_10000_agents_100_open_ms"]
        figures["growth_10_times_the_agents"] = round(float(small) / float(before), 2)
    return Outcome(figures, () if quick else _LIMITS)


def _set_up_django(home: Path) -> None:
    os.environ |= {
        "REFLOAT_HOME": str(home),
        "DATABASE_URL": "",
        "DJANGO_SETTINGS_MODULE": "dashboards.config.settings",
    }
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def _measure(agents: int, incidents: int, repeats: int) -> dict[str, Figure]:
    from fleet.alerts.evaluating import Evaluator
    from fleet.alerts.facts import gather
    from fleet.alerts.round import look
    from fleet.alerts.rules import DEFAULT_RULES
    from fleet.models.clusters import ensure_default_cluster
    from fleet.models.incidents import Incident
    from fleet.state.reader import Reader

    Incident.objects.all().delete()
    ensure_default_cluster()
    fleet = _Fleet(agents, incidents)
    gathered = median_ms(repeats, lambda: gather(fleet.table("default", fleet.tick()), fleet.now))
    evaluator = Evaluator(cast("Reader", fleet), "bench")
    for _ in range(3):
        evaluator.look("default", fleet.tick())
    # Longer than any rule wants it to hold, and than the first message waits.
    fleet.now += 120.0
    for _ in range(2):
        evaluator.look("default", fleet.tick())
    assert Incident.objects.filter(state="firing").count() == incidents, "every proxy strands its agents"
    kept = median_ms(repeats, lambda: evaluator.look("default", fleet.tick()))
    kept_moving = median_ms(repeats, lambda: evaluator.look("default", fleet.tick(moving=True)))
    open_ones = _loaded()
    facts = gather(fleet.table("default", fleet.now), fleet.now)
    pure = median_ms(repeats, lambda: look(open_ones(), facts, DEFAULT_RULES, (), lambda key: None))
    return {
        f"gather_{agents}_agents_ms": round(gathered, 2),
        f"look_{incidents}_open_ms": round(pure, 2),
        f"kept_{agents}_agents_{incidents}_open_ms": round(kept, 2),
        f"kept_{agents}_agents_{incidents}_open_all_changing_ms": round(kept_moving, 2),
    }


def _loaded() -> Callable[[], dict[str, object]]:
    from fleet.alerts import store

    values = {key: store.value_of(row) for key, row in store.load("default").items()}
    return lambda: values  # type: ignore[return-value]


class _Fleet:
    """A reader of a fleet whose every proxy is silent and strands its agents."""

    def __init__(self, agents: int, proxies: int) -> None:
        self.now = time.time()
        self._agents, self._proxies = agents, proxies
        self._moved = 0
        self._ids = tuple(f"id-{n}" for n in range(agents))
        self._names = tuple(f"agent-{n}" for n in range(agents))
        self._facts = {
            n: InstanceFacts(
                id=f"p{n}", index=n, kind=InstanceKind.PROXY, name=f"proxy-{n}", address="127.0.0.1:1", ttl=10.0,
                attempts=(Attempt(self.now, ok=n == proxies), Attempt(self.now, ok=n == proxies)),
                serving=ServingStatus.SERVING,
            )
            for n in range(proxies + 1)
        }  # fmt: skip

    def tick(self, *, moving: bool = False) -> float:
        """Let a second pass, and a round conclude; with one agent more or less at each proxy."""
        self.now += 1.0
        self._moved += moving
        return self.now

    def table(self, cluster: str, now: float) -> FleetTable:
        """See Reader."""
        from fleet.domain import columns

        rows = np.zeros(self._agents, columns.VERDICT)
        rows["cause"] = np.arange(self._agents) % self._proxies
        rows["state"] = State.STRANDED
        if self._moved % 2:
            rows["state"][: self._proxies] = State.HEALTHY
        rows["since"], rows["recovers_at"] = now - 600, now + 60
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
            cluster=cluster, epoch="e", seq=int(now), as_of=now, stale=False, ids=self._ids, names=self._names,
            instances=views, heartbeats=columns.empty_heartbeats(self._agents),
            memory=columns.empty_memory(self._agents),
            verdicts=rows, tunnel_agents=np.zeros(0, np.uint32), tunnel_proxies=np.zeros(0, np.uint16),
            fleet=FleetEvidence(cluster=cluster, instances={}),
        )  # fmt: skip
