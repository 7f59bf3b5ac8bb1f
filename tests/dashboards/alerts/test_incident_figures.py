from __future__ import annotations

import json
import time

import numpy as np

from dashboards.alerts.incident_figures import build_figures
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader


def test_heat_map_shows_affected_share_by_proxy_and_auth() -> None:
    """The worst row is on top; a cell without agents is empty, not 0 %."""
    now = time.time()
    table = FakeReader([State.HEALTHY, State.STRANDED] * 5, as_of=now).table("default", now)
    figures = build_figures(table, np.array([1, 3, 5]))
    assert figures is not None
    heat_map = figures["heat_map"]
    assert heat_map["rows"][0] == "proxy-2"
    worst = heat_map["z"][0]
    assert max(value for value in worst if value is not None) == 60.0
    assert "3 of 5 (60 %)" in heat_map["table"][0]["cells"]
    assert heat_map["hidden_count"] == 0


def test_ribbons_count_every_agent_once() -> None:
    """By verdict, reason, home proxy and auth; the widest first, and the same in words."""
    now = time.time()
    table = FakeReader([State.STRANDED] * 6 + [State.AT_RISK] * 2, as_of=now).table("default", now)
    figures = build_figures(table, np.arange(8))
    assert figures is not None
    ribbons = figures["ribbons"]
    assert sum(ribbons["counts"]) == 8
    assert ribbons["counts"] == sorted(ribbons["counts"], reverse=True)
    assert [dimension["label"] for dimension in ribbons["dimensions"]][:4] == [
        "State",
        "Reason",
        "Home proxy",
        "Auth",
    ]
    assert sum(count for count, red in zip(ribbons["counts"], ribbons["stranded"], strict=True) if red) == 6
    assert ribbons["combinations"][0]["values"].startswith("stranded, ")
    assert json.loads(json.dumps(figures)) == figures


def test_incident_without_affected_agents_has_no_chart() -> None:
    """An empty chart would look like a failed one."""
    now = time.time()
    table = FakeReader([State.HEALTHY], as_of=now).table("default", now)
    assert build_figures(table, np.array([], dtype=np.intp)) is None


def test_share_of_copied_agents_is_that_of_the_whole_fleet() -> None:
    """A copy has the affected agents only, and the totals of the fleet apart."""
    now = time.time()
    table = FakeReader([State.STRANDED] * 2, as_of=now).table("default", now)
    figures = build_figures(table, np.arange(2), {(2, 0): 4, (3, 1): 1, (3, 0): 7}, is_past=True)
    assert figures is not None
    assert figures["is_past"] is True
    assert figures["heat_map"]["table"] == [
        {"name": "proxy-1", "cells": ["1 of 4 (25 %)", ""]},
        {"name": "proxy-2", "cells": ["0 of 7 (0 %)", "1 of 1 (100 %)"]},
    ]


def test_cells_of_a_wide_heat_map_show_the_share_only() -> None:
    """The counts do not fit; the table has them."""
    now = time.time()
    table = FakeReader([State.STRANDED] * 2, as_of=now).table("default", now)
    figures = build_figures(table, np.arange(2), {(2, auth): 4 for auth in range(7)})
    assert figures is not None
    assert figures["heat_map"]["text"][0][0] == "25 %"
    assert figures["heat_map"]["table"][0]["cells"][0] == "1 of 4 (25 %)"
