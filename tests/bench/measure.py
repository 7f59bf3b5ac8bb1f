"""What every bench shares: targets, what missed them, medians, the table for people and the JSON line for programs."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Figure = float | int | str


class BenchError(Exception):
    """A bench that cannot run here; the sentence says why and how to mend it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A figure must be at most, or at least, so much."""

    figure: str
    at_most: float | None = None
    at_least: float | None = None

    def met_by(self, figures: Mapping[str, Figure]) -> bool:
        """A figure that is missing, or no number, meets no target."""
        value = figures.get(self.figure)
        if not isinstance(value, int | float) or math.isnan(value):
            return False
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    @property
    def limit(self) -> str:
        """`<= 50`."""
        return f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least or 0:g}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a bench measured."""

    figures: Mapping[str, Figure]
    targets: Sequence[Target] = ()
    #: The same measured of something else in the same run, for the ratio.
    peers: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def missed(self) -> list[str]:
        """Figures that miss their targets."""
        return [target.figure for target in self.targets if not target.met_by(self.figures)]


def line(name: str, outcome: Outcome) -> str:
    """The JSON object that ends a bench's output."""
    return json.dumps(
        {
            "bench": name,
            "figures": dict(outcome.figures),
            "targets": {target.figure: target.limit for target in outcome.targets},
            "peers": dict(outcome.peers),
            "missed": outcome.missed,
        }
    )


def table(outcome: Outcome) -> str:
    """The same for a person."""
    limits = {target.figure: target for target in outcome.targets}
    rows = []
    for name, value in outcome.figures.items():
        target = limits.get(name)
        verdict = (
            ""
            if target is None
            else f"{target.limit:>10}  {'ok' if name not in outcome.missed else 'MISSED'}"
        )
        rows.append((name, _show(value), verdict))
    rows += [
        (name, "not measured", f"{limits[name].limit:>10}  MISSED")
        for name in limits
        if name not in outcome.figures
    ]
    rows += [(name, _show(value), "      peer") for name, value in outcome.peers.items()]
    width = max((len(name) for name, _, _ in rows), default=0)
    return "\n".join(f"{name:<{width}}  {value:>12}  {verdict}".rstrip() for name, value, verdict in rows)


def _show(value: Figure) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median_ms(repeats: int, work: Callable[[], object]) -> float:
    """Median milliseconds of `repeats` runs, after one that warms up."""
    work()
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def let_run(seconds: float) -> float:
    """Sleep while what is measured runs; return how long it really was, seconds."""
    began = time.monotonic()
    while (lasted := time.monotonic() - began) < seconds:
        time.sleep(min(1.0, seconds - lasted))
    return lasted
