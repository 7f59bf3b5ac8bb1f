from __future__ import annotations

import pytest

from dashboards.fleet.timeline.time_range import RANGE_LABELS, RANGES, TimeRange, parse_range, query_of
from dashboards.shared.rewind import MomentError

#: 2023-11-15T00:00:00Z.
NOW = 1_700_006_400.0
DAY = 86_400.0


def test_ranges_that_end_now() -> None:
    """24 h unless the URL has another range; each range has a label."""
    assert parse_range({}, NOW) == TimeRange(NOW - DAY, NOW, "24h")
    assert parse_range({"range": "90d"}, NOW) == TimeRange(NOW - 90 * DAY, NOW, "90d")
    assert {name for name, _ in RANGE_LABELS} == set(RANGES)


def test_range_of_the_url() -> None:
    """Without an end, up to now; an input field writes times without an offset, in UTC."""
    assert parse_range({"since": "2023-11-14T10:00"}, NOW) == TimeRange(NOW - 14 * 3600, NOW)
    time_range = parse_range({"since": "2023-11-14T10:00:00Z", "until": "2023-11-14T11:00:00Z"}, NOW)
    assert (time_range.seconds, time_range.name) == (3600, "")
    assert time_range.query() == "since=2023-11-14T10:00:00.000Z&until=2023-11-14T11:00:00.000Z"


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"range": "2h"}, "Unknown range '2h': use 6h, 24h, 7d, 30d, 90d."),
        ({"range": "24h", "since": "2023-11-14T10:00"}, "use either range, or since and until"),
        ({"until": "2023-11-14T10:00"}, "add since"),
        ({"since": "yesterday"}, "Invalid time 'yesterday'"),
        ({"since": "2024-11-14T10:00"}, "is in the future"),
        ({"since": "2023-11-14T10:00", "until": "2023-11-14T09:00"}, "ends before it starts"),
        ({"since": "2023-11-14T10:00", "until": "2023-11-14T10:04"}, "Enter at least 5 min."),
        ({"since": "2022-01-01T00:00"}, "enter at most 400 days"),
    ],
)
def test_invalid_ranges(parameters: dict[str, str], sentence: str) -> None:
    """The error says what to enter."""
    with pytest.raises(MomentError, match=sentence):
        parse_range(parameters, NOW)


def test_neighbours() -> None:
    """As long as the range, and never in the future; no range is later than a range that ends now."""
    time_range = TimeRange(NOW - 3 * DAY, NOW - 2 * DAY)
    assert time_range.earlier() == TimeRange(NOW - 4 * DAY, NOW - 3 * DAY)
    assert time_range.later(NOW) == TimeRange(NOW - 2 * DAY, NOW - DAY)
    assert TimeRange(NOW - 1.5 * DAY, NOW - DAY / 4).later(NOW) == TimeRange(NOW - 1.25 * DAY, NOW)
    assert TimeRange(NOW - DAY, NOW - 30).later(NOW) is None
    assert time_range.wider(NOW) == TimeRange(NOW - 4 * DAY, NOW - DAY)
    assert TimeRange(NOW - DAY, NOW).wider(NOW) == TimeRange(NOW - 3 * DAY, NOW)
    assert TimeRange(NOW - 200 * DAY, NOW).wider(NOW) is None
    assert TimeRange(0.0, DAY).earlier() == TimeRange(0.0, DAY)


def test_query_leads_back_to_the_range() -> None:
    """The address of a range shows the same range."""
    query = dict(pair.split("=") for pair in query_of(NOW - DAY, NOW - 60).split("&"))
    assert parse_range(query, NOW) == TimeRange(NOW - DAY, NOW - 60)
