from __future__ import annotations

import numpy as np

from dashboards.fleet.timeline.buckets import Buckets, split_range
from dashboards.fleet.timeline.heat_strip import (
    HeatStrip,
    StrandedCells,
    StripInstance,
    draw_strip,
    level_of,
    sort_by_name,
)
from dashboards.fleet.timeline.instance_spans import InstanceSpan, SpanKind
from fleet.monitoring.history.minute_columns import group_columns_of
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.state.outbox import GROUP_COUNT, GroupKind
from fleet.vocabulary.verdicts import State

#: 2023-11-15T00:00:00Z.
START = 1_700_006_400.0
INSTANCES = [StripInstance(7, "id-7", "proxy-1"), StripInstance(3, "id-3", "proxy-2")]


def _row(
    at: float, *counts: tuple[int, int], kind: GroupKind = GroupKind.PROXY, duration: int = 60
) -> tuple[float, int, bytes]:
    """Return a row of counts with (key of the instance, stranded agents)."""
    groups = [(kind, State.STRANDED, key, count) for key, count in counts]
    groups += [(kind, State.HEALTHY, 7, 99), (GroupKind.AUTH, State.STRANDED, 3, 98)]
    return at, duration, pack_groups(np.array(groups, GROUP_COUNT), np.arange(100))


def _draw(
    *rows: tuple[float, int, bytes],
    buckets: Buckets,
    spans: dict[str, list[InstanceSpan]] | None = None,
    instances: list[StripInstance] = INSTANCES,
) -> HeatStrip:
    cells = StrandedCells(GroupKind.PROXY, instances, buckets)
    for row in rows:
        # In parts, as they are read.
        cells.add(group_columns_of([row]))
    return draw_strip(cells, spans or {}, START + 9000)


def test_cells_have_the_most_stranded_agents() -> None:
    """Of their instance and time, with the moment at which they were counted; other states and kinds do not count."""
    buckets = split_range(START, START + 600 * 60)
    assert buckets.step == 120
    strip = _draw(
        _row(START, (7, 2)),
        _row(START + 60, (7, 5), (3, 1)),
        _row(START + 240, (7, 4)),
        _row(START + 300, (7, 4), (50, 9)),
        buckets=buckets,
    )
    assert strip.data["names"] == ["proxy-1", "proxy-2"]
    assert strip.data["queries"] == ["proxy:proxy-1", "proxy:proxy-2"]
    assert strip.data["cells"] == [[[0, 5, 90], [2, 4, 30]], [[0, 1, 90]]]
    assert strip.peak == 5
    assert [(row.name, row.peak, row.at_text) for row in strip.rows] == [
        ("proxy-1", 5, "2023-11-15T00:01:30.000Z"),
        ("proxy-2", 1, "2023-11-15T00:01:30.000Z"),
    ]


def test_equal_cells_side_by_side_are_one_piece() -> None:
    """One path for each colour, whatever the number of rows."""
    buckets = split_range(START, START + 300)
    strip = _draw(
        _row(START, (7, 8), (3, 2)), _row(START + 60, (7, 8)), _row(START + 180, (7, 8)), buckets=buckets
    )
    assert [(part.css_class, part.path) for part in strip.cells] == [
        ("level-1", "M0 1h1v1h-1z"),
        ("level-4", "M0 0h2v1h-2zM3 0h1v1h-1z"),
    ]


def test_colours_and_their_legend_agree() -> None:
    """Every count is in the range of its colour; few agents need fewer colours."""
    for peak in (1, 2, 3, 5, 13, 50, 100_000):
        strip = _draw(_row(START, (7, peak)), buckets=split_range(START, START + 300))
        levels = dict.fromkeys(level_of(np.arange(1, peak + 1), peak).tolist())
        assert [f"level-{level}" for level in levels] == [level.css_class for level in strip.legend]
    assert [level.label for level in strip.legend] == [
        "1 to 25,000", "25,001 to 50,000", "50,001 to 75,000", "75,001 to 100,000",
    ]  # fmt: skip
    assert level_of(np.array([0, 1, 25_000, 25_001]), 100_000).tolist() == [0, 1, 1, 2]


def test_rows_longer_than_a_column() -> None:
    """An hour stands for all of its minutes; each cell leads to a moment inside of it."""
    buckets = split_range(START, START + 7200)
    strip = _draw(_row(START, (7, 3), duration=3600), buckets=buckets)
    cells = strip.data["cells"][0]
    assert [bucket for bucket, _, _ in cells] == list(range(60))
    assert {offset for _, _, offset in cells[:-1]} == {60}
    assert cells[-1] == [59, 3, 30]


def test_states_are_lines_and_words() -> None:
    """A short state has a visible width; an instance that is gone fills its row."""
    buckets = split_range(START, START + 600)
    spans = {
        "id-7": [
            InstanceSpan(SpanKind.SILENT, START - 60, START + 120),
            InstanceSpan(SpanKind.SILENT, START + 300, START + 301),
            InstanceSpan(SpanKind.DRAINING, START + 60, START + 240),
        ],
        "id-3": [InstanceSpan(SpanKind.DEREGISTERED, START + 300, START + 600)],
    }
    strip = _draw(buckets=buckets, spans=spans)
    assert {part.css_class: part.path for part in strip.spans} == {
        "silent": "M0.0 0.86H2.0M5.0 0.86H6.2",
        "gone": "M5.0 1H10.0v1H5.0z",
        "draining": "M1.0 0.14H4.0",
    }
    assert [row.states for row in strip.rows] == ["not responding (2), draining (1)", "deregistered (1)"]
    assert strip.kinds == (SpanKind.SILENT, SpanKind.DEREGISTERED, SpanKind.DRAINING)
    assert strip.data["spans"][1] == [[START + 300, START + 600, "deregistered"]]
    assert strip.legend == ()


def test_hundred_proxies_fit() -> None:
    """In natural order, with lower rows; a name with a space is quoted in the query."""
    instances = sort_by_name(StripInstance(key, str(key), f"proxy-{key}") for key in range(1, 101))
    assert [instance.name for instance in instances[:3]] == ["proxy-1", "proxy-2", "proxy-3"]
    strip = _draw(_row(START, (60, 1)), buckets=split_range(START, START + 300), instances=instances)
    assert (strip.row_height, strip.height) == (16, 1600)
    assert strip.rows[59].peak == 1
    strip = _draw(buckets=split_range(START, START + 300), instances=[StripInstance(1, "1", "a b")])
    assert strip.data["queries"] == ["'proxy:a b'"]
    assert _draw(_row(START, (7, 1)), buckets=split_range(START, START + 300), instances=[]).rows == ()
