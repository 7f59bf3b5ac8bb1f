from __future__ import annotations

import json

from dashboards.fleet import agent_json
from dashboards.fleet.agent_csv import COLUMNS
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader


def test_chunks_are_one_object() -> None:
    """In any number of chunks, with no agents too; lists and nulls instead of texts."""
    reader = FakeReader(states=[State.HEALTHY, State.STRANDED, State.HEALTHY], as_of=1_700_000_000.25)
    table = reader.table("default", 1_700_000_001.0)
    for count in range(4):
        chunks = agent_json.iterate_json_chunks(
            reader.agents(table, range(count)), table.instances.values(), {"filter": 'a "b"'}, chunk_size=2
        )
        document = json.loads("".join(chunks))
        assert document["filter"] == 'a "b"'
        assert document["columns"] == list(COLUMNS)
        assert [agent["name"] for agent in document["agents"]] == [f"agent-{n}" for n in range(count)]
    agent = document["agents"][1]
    assert tuple(agent) == COLUMNS
    assert (agent["cause"], agent["since"]) == ("proxy-1", "2023-11-14T22:13:20.250Z")
    assert (agent["recovers_at"], agent["proxies"], agent["generations"]) == (None, ["proxy-2"], [3])
    assert (agent["health_check"], agent["labels"]) == (True, {"env": "prod"})


def test_only_some_columns() -> None:
    reader = FakeReader(states=[State.HEALTHY], as_of=1_700_000_000.0)
    table = reader.table("default", 1_700_000_001.0)
    chunks = agent_json.iterate_json_chunks(
        reader.agents(table, [0]), table.instances.values(), {}, columns=("name", "auth")
    )
    assert json.loads("".join(chunks)) == {
        "columns": ["name", "auth"], "agents": [{"name": "agent-0", "auth": "auth-1"}],
    }  # fmt: skip
