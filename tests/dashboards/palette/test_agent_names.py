"""Search of agents by name or id."""

from __future__ import annotations

import secrets
from dataclasses import replace
from time import perf_counter

import numpy as np

from dashboards.palette.agent_names import find_agents
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader

#: Seconds in which 100,000 agents are searched. Ten times what it takes on a quiet machine.
_MAX_SECONDS = 1.5


def make_table(
    names: list[str], ids: list[str] | None = None, states: list[State] | None = None
) -> FleetTable:
    """Return the table of a cluster of its own with these agents."""
    table = FakeReader(states=[State.HEALTHY]).table("default", 0.0)
    verdicts = np.zeros(len(names), table.verdicts.dtype)
    verdicts["state"] = [int(state) for state in states or [State.HEALTHY] * len(names)]
    return replace(
        table,
        cluster=f"t{secrets.token_hex(4)}",
        names=tuple(names),
        ids=tuple(ids or [f"id-of-{index}" for index in range(len(names))]),
        verdicts=verdicts,
    )


def find_names(table: FleetTable, query: str, limit: int = 10) -> list[str]:
    """Return the names of the matches, best first."""
    return [table.names[index] for index in find_agents(table, query, limit).indices]


def test_order_of_matches() -> None:
    """Exact, prefix, start of a word, part."""
    table = make_table(["xweb", "db-web", "web-1", "web", "other"])
    assert find_names(table, "web") == ["web", "web-1", "db-web", "xweb"]
    assert find_agents(table, "web", 2).total_count == 4
    assert find_names(table, "web", 2) == ["web", "web-1"]


def test_stranded_agents_come_before_healthy_ones() -> None:
    """Among equally good matches."""
    table = make_table(["web-1", "web-2", "web-3"], states=[State.HEALTHY, State.AT_RISK, State.STRANDED])
    assert find_names(table, "web") == ["web-3", "web-2", "web-1"]


def test_ids_and_several_words() -> None:
    """Each word is in the name or in the id."""
    table = make_table(["Web One", "Web Two"], ["aa-1", "bb-2"])
    assert find_names(table, "bb-2") == ["Web Two"]
    assert find_names(table, "two web") == ["Web Two"]
    assert find_names(table, "web bb") == ["Web Two"]
    assert find_names(table, "three") == []
    assert find_names(table, "") == []


def test_renamed_agents_are_found_by_their_new_name() -> None:
    """The kept names are those of the newest table."""
    table = make_table(["old"])
    assert find_names(table, "old") == ["old"]
    assert find_names(replace(table, names=("new",)), "new") == ["new"]


def test_large_fleet() -> None:
    """Every query is answered while a person types."""
    table = make_table([f"agent-{number}.site-{number % 40}" for number in range(100_000)])
    find_agents(table, "a", 6)
    for query in ("agent-99999", "e", "site-7", "agent site", "nothing"):
        begun_at = perf_counter()
        find_agents(table, query, 6)
        assert perf_counter() - begun_at < _MAX_SECONDS
    assert find_names(table, "agent-99999") == ["agent-99999.site-39"]
