from __future__ import annotations

import csv
import io
import time

import pytest

from dashboards import agent_csv
from fleet.domain.verdicts import State
from tests.fakes.reader import FakeReader


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_formulas_are_text(text: str) -> None:
    """Nothing an agent calls itself is run by a spreadsheet."""
    assert agent_csv.cell(text) == f"'{text}"
    assert agent_csv.cell("agent-1") == "agent-1"


def test_lines_read_back() -> None:
    """A CSV reader gets every agent once, names of instances, and times in ISO 8601."""
    reader = FakeReader(states=[State.HEALTHY, State.STRANDED, State.HEALTHY], as_of=1_700_000_000.25)
    table = reader.table("default", time.time())
    pieces = list(agent_csv.lines(reader.agents(table, range(3)), table.instances.values(), at_once=2))
    assert len(pieces) == 2
    rows = list(csv.DictReader(io.StringIO("".join(pieces), newline="")))
    assert [row["name"] for row in rows] == ["agent-0", "agent-1", "agent-2"]
    assert rows[1]["cause"] == "proxy-1"
    assert rows[1]["since"] == "2023-11-14T22:13:20.250Z"
    assert rows[1]["recovers_at"] == ""
    assert (rows[1]["auth"], rows[1]["proxies"]) == ("auth-2", "proxy-2")
