from __future__ import annotations

from dashboards.fleet.timeline.agent_strip import AgentStrip, StripChange, draw_strip
from fleet.vocabulary.verdicts import State

#: Midnight, UTC.
SINCE = 1_700_006_400.0
DAY = 86_400.0
HALF = DAY / 2


def draw(*changes: tuple[float, State, State], gaps: tuple[tuple[float, float], ...] = ()) -> AgentStrip:
    """A day of an agent that is healthy now; times are seconds after its start."""
    return draw_strip(
        [StripChange(SINCE + at, old, new) for at, old, new in changes],
        State.HEALTHY,
        [(SINCE + start, SINCE + end) for start, end in gaps],
        SINCE,
        SINCE + DAY,
    )


def test_without_changes_the_present_state_fills_the_day() -> None:
    """An agent that has not changed since its history began."""
    strip = draw()
    assert [(bar.x, bar.width, bar.tone) for bar in strip.periods] == [(0.0, 100.0, "healthy")]
    assert strip.summary == "Healthy."


def test_periods_meet_and_the_change_before_the_range_names_the_first_state() -> None:
    """Worse states come first in the summary; a healthy time needs no words."""
    strip = draw(
        (-HALF, State.HEALTHY, State.AT_RISK),
        (HALF, State.AT_RISK, State.STRANDED),
        (HALF + 600, State.STRANDED, State.HEALTHY),
    )
    assert [(bar.x, bar.tone) for bar in strip.periods] == [
        (0.0, "at_risk"),
        (50.0, "stranded"),
        (50.694, "healthy"),
    ]
    assert strip.summary == "Stranded for 10 min and at risk for 12 h."
    assert strip.periods[1].target == "?at=2023-11-15T12:05:00Z"
    assert strip.periods[1].title == "Stranded, 2023-11-15 12:00 to 12:10 UTC, 10 min"


def test_moves_do_not_divide_a_period() -> None:
    """A change of the place alone keeps the state."""
    strip = draw((HALF, State.HEALTHY, State.HEALTHY), (HALF + 60, State.HEALTHY, State.HEALTHY))
    assert len(strip.periods) == 1


def test_a_short_period_is_wide_enough_to_be_seen() -> None:
    """A second of a day is 0.001 %."""
    strip = draw((HALF, State.HEALTHY, State.STRANDED), (HALF + 1, State.STRANDED, State.HEALTHY))
    assert strip.periods[1].width >= 0.2
    assert strip.summary == "Stranded for 1 s."


def test_times_without_data_are_no_time_in_a_state() -> None:
    """They are marked, and told."""
    strip = draw((0, State.HEALTHY, State.STRANDED), gaps=((HALF, DAY),))
    assert strip.summary == "Stranded for 12 h. No data for 12 h."
    assert [(bar.x, bar.width) for bar in strip.gaps] == [(50.0, 50.0)]
    assert draw(gaps=((0, DAY),)).summary == "No data. No data for 24 h."


def test_agent_begins_when_it_is_seen_for_the_first_time() -> None:
    """Before that it was unknown to Refloat, which is no state of its own."""
    strip = draw((HALF, State.UNKNOWN, State.HEALTHY))
    assert [(bar.x, bar.tone) for bar in strip.periods] == [(50.0, "healthy")]
    assert strip.summary == "Healthy."
