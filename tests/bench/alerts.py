"""One evaluation of incidents over 100,000 agents with 1,000 open incidents, in ms, and how it grows with both.

`evaluate` is pure: facts, rules, inhibition, lifecycle. `with_database` is a whole evaluation of the process: it also
reads incidents and writes changes, in its own SQLite.
`outage` has the record in Redis and notifications, too. With `--base`, CPU beside that of another commit.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from fleet.processes import valkey
from tests.bench import _evaluations
from tests.bench.measure import BenchError, Figure, Outcome, Target, median_ms

_ROOT = Path(__file__).resolve().parents[2]
_AGENTS, _OPEN = 100_000, 1_000
_LIMITS = (
    Target("with_database_100000_agents_1000_open_ms", at_most=1000),
    Target("gather_100000_agents_ms", at_most=100),
    Target("evaluate_1000_open_ms", at_most=200),
    # Within the second until the next evaluation; every incident notifies, and nearly all are resolved at once.
    Target("outage_worst_ms", at_most=1000),
    Target("outage_deliveries", at_least=150),
)
#: A change may cost this much CPU more than its base.
_BASE_TARGETS = (Target("same_cpu_of_base", at_most=1.2), Target("all_changing_cpu_of_base", at_most=1.2))
#: How often each commit has its turn.
_TURNS = 3


def run(*, quick: bool, base: Path | None = None) -> Outcome:
    """Measure sizes and numbers of incidents; `--quick` a tenth of both. `base`: a checkout of another commit."""
    scale = 10 if quick else 1
    repeats = 3 if quick else 7
    figures, peers = _compare_cpu(_AGENTS // scale, _OPEN // scale, repeats, base)
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        _evaluations.set_up_django(folder)
        for agents, incidents in ((_AGENTS // 10, _OPEN // 10), (_AGENTS, _OPEN // 10), (_AGENTS, _OPEN)):
            figures |= _measure(agents // scale, incidents // scale, repeats)
        figures |= _measure_outage(Path(folder) / "valkey", _AGENTS // (scale * scale), repeats)
    if not quick:
        small, large = (
            figures["with_database_100000_agents_100_open_ms"],
            figures["with_database_100000_agents_1000_open_ms"],
        )
        figures["growth_10_times_the_incidents"] = round(float(large) / float(small), 2)
        before = figures["with_database_10000_agents_100_open_ms"]
        figures["growth_10_times_the_agents"] = round(float(small) / float(before), 2)
    limits = (*_LIMITS, *(_BASE_TARGETS if base else ()))
    return Outcome(figures, () if quick else limits, peers)


def _compare_cpu(
    agents: int, incidents: int, repeats: int, base: Path | None
) -> tuple[dict[str, Figure], dict[str, Figure]]:
    """Return figures of CPU of this commit, and of the base: medians of several turns, each in a process of its own."""
    checkouts = [_ROOT, *([base] if base else [])]
    turns = [
        [_cpu(checkout, agents, incidents, repeats) for checkout in checkouts]
        for _ in range(_TURNS if base else 1)
    ]
    current = _medians([turn[0] for turn in turns])
    figures: dict[str, Figure] = {f"{name}_cpu_ms": round(value, 2) for name, value in current.items()}
    if base is None:
        return figures, {}
    base_figures = _medians([turn[1] for turn in turns])
    figures |= {
        f"{name}_cpu_of_base": round(value / base_figures[name], 3) for name, value in current.items()
    }
    return figures, {f"base_{name}_cpu_ms": round(value, 2) for name, value in base_figures.items()}


def _medians(turns: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}


def _cpu(checkout: Path, *sizes: int) -> dict[str, float]:
    """Run `_evaluations` over a checkout. Raises BenchError."""
    process = subprocess.run(
        [sys.executable, str(Path(_evaluations.__file__)), *(str(size) for size in sizes)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise BenchError(
            f"the evaluations of {checkout} cannot be measured: {process.stderr.strip()[-2000:]}"
        )
    figures: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return figures


def _measure(agents: int, incidents: int, repeats: int) -> dict[str, Figure]:
    from fleet.alerts.evaluation import evaluate
    from fleet.alerts.facts import facts_of_table
    from fleet.alerts.rules import DEFAULT_RULES

    fleet = _evaluations.Fleet(agents, incidents)
    gather_ms = median_ms(repeats, lambda: facts_of_table(fleet.table("default", fleet.tick()), fleet.now))
    evaluator = _evaluations.open_incidents(fleet, incidents)
    evaluation_ms = median_ms(repeats, lambda: evaluator.evaluate_cluster("default", fleet.tick()))
    changing_ms = median_ms(
        repeats, lambda: evaluator.evaluate_cluster("default", fleet.tick(alternating=True))
    )
    load_open = _load_incidents()
    facts = facts_of_table(fleet.table("default", fleet.now), fleet.now)
    evaluate_ms = median_ms(
        repeats, lambda: evaluate(load_open(), facts, DEFAULT_RULES, (), lambda key: None)
    )
    return {
        f"gather_{agents}_agents_ms": round(gather_ms, 2),
        f"evaluate_{incidents}_open_ms": round(evaluate_ms, 2),
        f"with_database_{agents}_agents_{incidents}_open_ms": round(evaluation_ms, 2),
        f"with_database_{agents}_agents_{incidents}_open_all_changing_ms": round(changing_ms, 2),
    }


def _measure_outage(folder: Path, agents: int, repeats: int) -> dict[str, Figure]:
    from tests.bench._alerts_outage import Outage

    server = valkey.start(folder, persist=False)
    try:
        return Outage(server.url, agents).measure(repeats)
    finally:
        server.stop()


def _load_incidents() -> Callable[[], dict[str, object]]:
    from fleet.alerts import store

    values = {key: store.incident_of(row) for key, row in store.load_incident_rows("default").items()}
    return lambda: values  # type: ignore[return-value]
