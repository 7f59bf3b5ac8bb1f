"""What every benchmark shares: targets, missed targets, medians, the table and the JSON line."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Figure = float | int | str
#: The end of a peer's name under `peers` where the value says why it could not be measured.
_MISSING = "_missing"


class BenchError(Exception):
    """A benchmark cannot run here; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """A limit of a figure: at most, or at least."""

    figure: str
    at_most: float | None = None
    at_least: float | None = None
    #: A further value to work towards, which nothing requires.
    moonshot: float | None = None

    def is_met_by(self, figures: Mapping[str, Figure]) -> bool:
        """Return whether the figure is within the limit; a missing or non-numeric figure is not."""
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
    #: The same measured of something else in the same run, for the ratio. `haproxy_missing` says why HAProxy was not.
    peers: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def missed_targets(self) -> list[str]:
        """Return the names of figures that miss their targets."""
        return [target.figure for target in self.targets if not target.is_met_by(self.figures)]

    @property
    def missing_peers(self) -> list[str]:
        """Return the names of peers that could not be measured."""
        return [name.removesuffix(_MISSING) for name in self.peers if name.endswith(_MISSING)]


def to_json_line(name: str, outcome: Outcome) -> str:
    """The JSON object that ends a bench's output."""
    return json.dumps(
        {
            "bench": name,
            "figures": dict(outcome.figures),
            "targets": {target.figure: target.limit for target in outcome.targets},
            "peers": dict(outcome.peers),
            "missed": outcome.missed_targets,
        }
    )


def to_table(outcome: Outcome) -> str:
    """Return the figures as a table for people."""
    limits = {target.figure: target for target in outcome.targets}
    rows = []
    for name, value in outcome.figures.items():
        target = limits.get(name)
        verdict = (
            ""
            if target is None
            else f"{target.limit:>10}  {'ok' if name not in outcome.missed_targets else 'MISSED'}"
        )
        if target is not None and target.moonshot is not None:
            verdict += f"  (moonshot {target.moonshot:g})"
        rows.append((name, _format_figure(value), verdict))
    rows += [
        (name, "not measured", f"{limits[name].limit:>10}  MISSED")
        for name in limits
        if name not in outcome.figures
    ]
    rows += [(name, _format_figure(value), "      peer") for name, value in outcome.peers.items()]
    width = max((len(name) for name, _, _ in rows), default=0)
    return "\n".join(f"{name:<{width}}  {value:>12}  {verdict}".rstrip() for name, value, verdict in rows)


def _format_figure(value: Figure) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed (nearest rank)."""
    sorted_values = sorted(values)
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)]


def median_ms(repeats: int, work: Callable[[], object]) -> float:
    """Median milliseconds of `repeats` runs, after one that warms up."""
    work()
    durations = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        durations.append((time.perf_counter() - start) * 1000)
    return statistics.median(durations)


def sleep_for(seconds: float) -> float:
    """Sleep while the measured process runs; return the actual seconds."""
    start = time.monotonic()
    while (run_seconds := time.monotonic() - start) < seconds:
        time.sleep(min(1.0, seconds - run_seconds))
    return run_seconds
