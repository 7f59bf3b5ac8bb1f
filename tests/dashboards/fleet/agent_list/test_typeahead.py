from __future__ import annotations

import time

import pytest

from dashboards.fleet import agent_query
from dashboards.fleet.agent_list import typeahead
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader


@pytest.fixture
def table() -> FleetTable:
    """Six agents, two of them stranded; even ones on proxy-1 and auth-1."""
    states = [State.HEALTHY, State.STRANDED, State.STRANDED, *[State.HEALTHY] * 3]
    return FakeReader(states=states, as_of=time.time()).table("default", time.time())


def _texts(table: FleetTable, typed_text: str, *other_filters: str) -> list[str]:
    return [suggestion.text for suggestion in typeahead.suggest(table, other_filters, typed_text)]


def test_keys_come_first(table: FleetTable) -> None:
    """All of them in an empty field, also labels that agents have; those that begin with what is typed."""
    keys = _texts(table, "")
    assert keys[:3] == ["state:", "cause:", "proxy:"]
    assert {"mode:", "version:", "group:", "generation:", "age:", "label.env:", "label.site:"} <= set(keys)
    assert _texts(table, "ve")[0] == "version:"
    assert _texts(table, "-pro")[:3] == ["-proxy:", "-only-proxy:", "-proxy:proxy-1"]
    assert _texts(table, "env")[0] == "label.env:"


def test_values_have_the_number_of_agents_beside_the_other_filters(table: FleetTable) -> None:
    """A second value of the same key adds to the first one: its own filter does not count."""
    counts = {s.text: s.count for s in typeahead.suggest(table, ("proxy:proxy-1", "state:healthy"), "state:")}
    assert (counts["state:stranded"], counts["state:healthy"], counts["state:offline"]) == (1, 2, 0)
    assert _texts(table, "state:")[0] == "state:stranded"
    assert _texts(table, "state:at r") == ["state:at_risk"]


@pytest.mark.parametrize(
    "typed_text",
    [
        "state:",
        "proxy:",
        "only-proxy:",
        "auth:",
        "version:",
        "label.env:",
        "age:",
        "mode:",
        "group:",
        "generation:",
    ],
)
def test_suggestions_are_filters_that_find_as_many(table: FleetTable, typed_text: str) -> None:
    suggestions = typeahead.suggest(table, ("state:stranded",), typed_text)
    for suggestion in suggestions:
        other_filters = "" if typed_text == "state:" else "state:stranded "
        query = agent_query.parse(f"{other_filters}{suggestion.text}")
        assert suggestion.count == len(agent_query.select(table, query)), suggestion
    assert suggestions or typed_text == "group:"


def test_words_find_values_and_agents(table: FleetTable) -> None:
    """Without a key: values that contain the text and have agents, then names of agents."""
    assert _texts(table, "stran")[0] == "state:stranded"
    assert _texts(table, "prod") == ["label.env:prod"]
    name = table.names[3]
    assert name in _texts(table, name.upper())
    assert _texts(table, f"-{name}") == []


@pytest.mark.parametrize(
    "typed_text", ["x:", ":", "-", "'", "label.:", "label.none:", "zzz", "state:'", "\n"]
)
def test_unknown_text_has_no_values(table: FleetTable, typed_text: str) -> None:
    """And fails nothing."""
    assert all(text.endswith(":") or text.startswith("state:") for text in _texts(table, typed_text))
