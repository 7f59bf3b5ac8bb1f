"""Selected agents: by id, by the filters of the list, by name."""

from __future__ import annotations

import time

import pytest
from django.http import QueryDict

from dashboards.fleet.agent_selection import SelectionError, select_agents, select_by_name
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader

NOW = time.time()
TABLE = FakeReader(states=[State.HEALTHY, State.STRANDED, State.RETIRED, State.HEALTHY], as_of=NOW).table(
    "default", NOW
)


def test_ids_or_else_the_filters() -> None:
    """Checked rows count, whatever the filter; without any, all that match it."""
    selection = select_agents(TABLE, QueryDict(f"agent={TABLE.ids[1]}&agent={TABLE.ids[0]}&q=nobody"), NOW)
    assert selection.indices == (0, 1)
    assert selection.fields == (("agents", f"{TABLE.ids[0]}\n{TABLE.ids[1]}"),)
    assert (selection.alive_count, selection.stranded_count, selection.retired_count) == (2, 1, 0)
    assert selection.subject == "2 agents"
    selection = select_agents(TABLE, QueryDict("state=healthy&q=agent"), NOW)
    assert selection.indices == (0, 3)
    assert selection.fields == (("q", "agent"), ("state", "healthy"))
    assert select_agents(TABLE, QueryDict(f"agent={TABLE.ids[2]}"), NOW).subject == TABLE.names[2]


def test_ids_of_other_pages_of_the_list() -> None:
    """In one field, a line each, beside the checked rows; an agent counts once."""
    params = QueryDict(mutable=True)
    params.setlist("agent", [TABLE.ids[3]])
    params["agents"] = f"{TABLE.ids[1]}\r\n{TABLE.ids[3]}\n\n{TABLE.ids[0]}"
    assert select_agents(TABLE, params, NOW).indices == (0, 1, 3)


def test_names_or_ids() -> None:
    """As people write them."""
    assert select_by_name(TABLE, [TABLE.names[3], TABLE.ids[0]], "", NOW).indices == (0, 3)
    assert select_by_name(TABLE, [], "state:stranded", NOW).indices == (1,)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("agent=nobody", "1 agent of the selection was not found: nobody"),
        ("q=colour:red", "colour"),
        ("q=nobody", "No agent is selected"),
    ],
)
def test_selection_that_no_action_can_use(query: str, sentence: str) -> None:
    """With the reason."""
    with pytest.raises(SelectionError, match=sentence):
        select_agents(TABLE, QueryDict(query), NOW)


def test_too_many_agents_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An action takes a limited number."""
    monkeypatch.setattr("dashboards.fleet.agent_selection.MAX_SELECTED", 1)
    with pytest.raises(SelectionError, match="at most 1"):
        select_agents(TABLE, QueryDict("q=agent"), NOW)
