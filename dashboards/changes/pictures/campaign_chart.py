"""The waves of a campaign: agents with a result over time, as planned and as seen, with failures marked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dashboards.changes.pictures.curve import Point, cover
from fleet.vocabulary.campaigns import CampaignAgentState, CampaignSettings, move_seconds_of

_MARGIN = 1.08


@dataclass(frozen=True, slots=True)
class FailureMark:
    """Agents that failed at about the same time."""

    x: float
    count: int


@dataclass(frozen=True, slots=True)
class CampaignChart:
    """A chart of agents with a result since the campaign started."""

    #: The planned curve and what was seen, as `points`; `actual` is empty before the start.
    expected: str
    actual: str
    failures: tuple[FailureMark, ...]
    #: Place of the present moment, 0 to 100; None: the campaign has not started, or has ended.
    now_x: float | None
    #: Until where the canaries run, and the end of the soak time, 0 to 100; None: no canaries.
    canary_end_x: float | None
    soak_end_x: float | None
    total_count: int
    tick_labels: tuple[str, ...]

    @property
    def soak_width(self) -> float:
        """Width of the soak time, 0 to 100."""
        return round((self.soak_end_x or 0.0) - (self.canary_end_x or 0.0), 2)


def campaign_chart_of(
    total_count: int,
    settings: CampaignSettings,
    duration_seconds: float,
    results: Iterable[tuple[float, str, int]] = (),
    elapsed_seconds: float | None = None,
    *,
    is_running: bool = False,
) -> CampaignChart | None:
    """Return the chart of a campaign; None when no agent moves.

    `total_count`: agents that move. `results`: seconds since the start, state, number of agents. `elapsed_seconds`:
    since the start, until now or until the end.
    """
    if total_count <= 0:
        return None
    rows = sorted(results)
    last_seconds = max([duration_seconds * _MARGIN, elapsed_seconds or 0.0, *(at for at, _, _ in rows), 1.0])
    scale = cover(last_seconds, float(total_count))
    canary_end, soak_end = _bounds_of_canaries(total_count, settings)
    finished_points = _accumulate(rows)
    return CampaignChart(
        expected=scale.line(_expected_points(total_count, settings, duration_seconds)),
        actual=""
        if elapsed_seconds is None
        else scale.steps([(0.0, 0.0), *finished_points], elapsed_seconds),
        failures=tuple(
            FailureMark(scale.x(at), count) for at, state, count in rows if state == CampaignAgentState.FAILED
        ),
        now_x=scale.x(elapsed_seconds) if is_running and elapsed_seconds is not None else None,
        canary_end_x=None if canary_end is None else scale.x(canary_end),
        soak_end_x=None if soak_end is None else scale.x(soak_end),
        total_count=total_count,
        tick_labels=scale.tick_labels,
    )


def _bounds_of_canaries(total_count: int, settings: CampaignSettings) -> tuple[float | None, float | None]:
    if not settings.canary_size or total_count <= settings.canary_size:
        return None, None
    canary_end = move_seconds_of(settings)
    return canary_end, canary_end + settings.soak_seconds


def _expected_points(
    total_count: int, settings: CampaignSettings, duration_seconds: float
) -> Sequence[Point]:
    """Return the planned curve: the canaries, the soak time, then the rest at the rate limit."""
    canary_end, soak_end = _bounds_of_canaries(total_count, settings)
    if canary_end is None or soak_end is None:
        return [(0.0, 0.0), (duration_seconds, float(total_count))]
    canaries = float(settings.canary_size)
    return [
        (0.0, 0.0),
        (canary_end, canaries),
        (soak_end, canaries),
        (max(duration_seconds, soak_end), float(total_count)),
    ]


def _accumulate(rows: Sequence[tuple[float, str, int]]) -> list[Point]:
    """Return the number of agents with a result by each moment. Skipped agents do not move, so they do not count."""
    points: list[Point] = []
    count = 0
    for at, state, agent_count in rows:
        if state in (CampaignAgentState.SUCCEEDED, CampaignAgentState.FAILED):
            count += agent_count
            points.append((at, float(count)))
    return points
