from __future__ import annotations

import csv
import io
import time
from dataclasses import replace

import pytest

from dashboards.fleet import agent_csv
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_formulas_are_text(text: str) -> None:
    """Nothing an agent calls itself is run by a spreadsheet."""
    assert agent_csv.to_csv_cell(text) == f"'{text}"
    assert agent_csv.to_csv_cell("agent-1") == "agent-1"


def test_lines_read_back() -> None:
    """A CSV reader gets every agent once, names of instances, and times in ISO 8601."""
    reader = FakeReader(states=[State.HEALTHY, State.STRANDED, State.HEALTHY], as_of=1_700_000_000.25)
    table = reader.table("default", time.time())
    pieces = list(
        agent_csv.iterate_csv_chunks(reader.agents(table, range(3)), table.instances.values(), chunk_size=2)
    )
    assert len(pieces) == 2
    rows = list(csv.DictReader(io.StringIO("".join(pieces), newline="")))
    assert [row["name"] for row in rows] == ["agent-0", "agent-1", "agent-2"]
    assert rows[1]["cause"] == "proxy-1"
    assert rows[1]["since"] == "2023-11-14T22:13:20.250Z"
    assert rows[1]["recovers_at"] == ""
    assert (rows[1]["auth"], rows[1]["proxies"]) == ("auth-2", "proxy-2")


def test_policy_and_generations_have_columns() -> None:
    """Reconnect mode, health check, when the policy was read, and the groups and generations of the proxies."""
    reader = FakeReader(states=[State.HEALTHY] * 2, as_of=1_700_000_000.25)
    table = reader.table("default", 1_700_000_001.0)
    text = "".join(agent_csv.iterate_csv_chunks(reader.agents(table, range(2)), table.instances.values()))
    silent, reachable = csv.DictReader(io.StringIO(text, newline=""))
    columns = ("mode", "health_check", "policy_read_at", "groups", "generations")
    assert [silent[column] for column in columns] == ["unknown", "", "", "", "0"]
    assert [reachable[column] for column in columns] == [
        "reconnect", "on", "2023-11-14T22:13:20.250Z", "blue", "3",
    ]  # fmt: skip


def test_version_and_labels_have_columns() -> None:
    """Labels are a JSON object; cells of agents without them are empty."""
    reader = FakeReader(states=[State.HEALTHY] * 3, as_of=1_700_000_000.25)
    table = reader.table("default", 1_700_000_001.0)
    text = "".join(agent_csv.iterate_csv_chunks(reader.agents(table, range(3)), table.instances.values()))
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [(row["version"], row["labels"]) for row in rows] == [
        *(("", ""), ("18.10.0", '{"env": "prod"}'), ("18.9.1", '{"env": "dev", "site": "oslo"}'))
    ]


def test_agent_on_two_generations() -> None:
    """Each group and generation once, in order; a health check that is off is not one that nobody reported."""
    reader = FakeReader(states=[State.HEALTHY] * 2, as_of=1_700_000_000.25)
    table = reader.table("default", 1_700_000_001.0)
    instances = {view.facts.id: view.facts for view in table.instances.values()}
    instances["proxy-id-3"] = replace(instances["proxy-id-2"], id="proxy-id-3", generation=4)
    proxies = ("proxy-id-3", "proxy-id-2", "proxy-id-1", "gone")
    view = replace(reader.agent(table, 1), proxies=proxies, health_check=False)
    cells = dict(zip(agent_csv.COLUMNS, agent_csv.to_csv_row(view, instances), strict=True))
    assert (cells["groups"], cells["generations"], cells["health_check"]) == ("blue", "0 3 4", "off")
    assert cells["proxies"].endswith(" gone")
