from __future__ import annotations

import time
from dataclasses import replace

import pytest

from dashboards.fleet import agent_query
from dashboards.fleet.agent_query import AgentQuery, QueryError
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, State
from tests.fakes.reader import FakeReader

STATES = [State.HEALTHY, State.STRANDED, State.AT_RISK, State.HEALTHY, State.STRANDED]


@pytest.fixture
def table() -> FleetTable:
    """Five agents, even ones on proxy-1 and auth-1."""
    return FakeReader(states=list(STATES), as_of=time.time()).table("default", time.time())


def test_parse_everything() -> None:
    """Keys with a colon filter, a minus negates, the rest is searched; quotes keep spaces."""
    query = agent_query.parse('state:stranded state:at-risk -state:healthy proxy:p1 -auth:a2 Web "two words"')
    assert query == AgentQuery(
        states=(State.STRANDED, State.AT_RISK),
        not_states=(State.HEALTHY,),
        proxies=("p1",),
        not_auths=("a2",),
        search_terms=("web", "two words"),
    )
    assert agent_query.parse("  ") == AgentQuery()


def test_select_by_cause(table: FleetTable) -> None:
    """By the name or the id of the instance, or the auth backend."""
    verdicts = table.verdicts.copy()
    verdicts["cause"] = [NO_CAUSE, 2, 3, BACKEND_CAUSE, 2]
    table_with_causes = replace(table, verdicts=verdicts)
    for text, indices in (("cause:proxy-1", [1, 4]), ("cause:backend cause:proxy-id-2", [2, 3])):
        assert agent_query.select(table_with_causes, agent_query.parse(text)).tolist() == indices


def test_select_agents_without_a_place(table: FleetTable) -> None:
    """Those whose proxy, or auth, Refloat does not know."""
    places = table.places.copy()
    places["proxy"][[1, 3]] = places["auth"][2] = NO_INSTANCE
    placeless = replace(table, places=places)
    for text, indices in (("proxy:none", [1, 3]), ("proxy:none state:stranded", [1]), ("auth:none", [2])):
        assert agent_query.select(placeless, agent_query.parse(text)).tolist() == indices


@pytest.mark.parametrize("text", ["state:happy", "color:red", "'open", "state:", "label:env", "label.:prod"])
def test_parse_nonsense_is_a_sentence(text: str) -> None:
    """Invalid terms are reported, never ignored."""
    with pytest.raises(QueryError, match=r"\.$"):
        agent_query.parse(text)


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("", [0, 1, 2, 3, 4]),
        ("state:stranded", [1, 4]),
        ("-state:stranded -state:healthy", [2]),
        ("proxy:proxy-1", [0, 2, 4]),
        ("proxy:proxy-id-1 state:stranded", [4]),
        ("-auth:auth-1", [1, 3]),
        ("agent-4", [4]),
        ("version:18.10.0", [1, 4]),
        ("version:18.*", [1, 2, 4]),
        ("-version:18.9.?", [0, 1, 3, 4]),
        ("version:", [0, 3]),
        ("version:18.1 version:18.9.1", [2]),
        ("label.env:prod", [1, 4]),
        ("label.env:*", [1, 2, 4]),
        ("-label.env:*", [0, 3]),
        ("label.env:prod label.env:dev", [1, 2, 4]),
        ("label.env:prod label.site:oslo", []),
        ("-label.env:prod -label.site:o*", [0, 3]),
        ("label.env:Prod", []),
        ("label.unknown:x", []),
        ("label.env:prod state:stranded -version:17.*", [1, 4]),
        ("id-1 agent", [1]),
        ("nothing", []),
        ("id:id-1 id:id-3", [1, 3]),
        ("-id:id-1 state:stranded", [4]),
        ("cause:backend", []),
        ("-cause:proxy-1", [0, 1, 2, 3, 4]),
    ],
)
def test_select(table: FleetTable, text: str, indices: list[int]) -> None:
    """Filters hold together, in map order."""
    assert agent_query.select(table, agent_query.parse(text)).tolist() == indices


def test_errors_about_labels_name_the_form() -> None:
    """Also that of an unknown filter."""
    for text in ("label:env=prod", "-label.:prod"):
        with pytest.raises(QueryError, match=r"label\.env:prod"):
            agent_query.parse(text)
    with pytest.raises(QueryError, match=r"mode, version, group, generation, age, id, label\.KEY"):
        agent_query.parse("color:red")


def test_number_of_filters_by_version_and_label_is_limited() -> None:
    """Each is compared with every distinct label set."""
    agent_query.parse(" ".join(["label.env:a", "-version:1"] * 10))
    with pytest.raises(QueryError, match="up to 20 versions and labels"):
        agent_query.parse(" ".join(["label.env:a"] * 10 + ["-version:1"] * 11))


def test_versions_sort_in_natural_order(table: FleetTable) -> None:
    """18.9 comes before 18.10; agents without a version are first."""
    assert agent_query.select_sorted(table, AgentQuery(), "version").tolist() == [0, 3, 2, 1, 4]
    page = agent_query.select_page(table, AgentQuery(), cursor=None, limit=2, sort="-version")
    assert page.indices == (1, 4)
    next_page = agent_query.select_page(
        table, AgentQuery(), cursor=page.next_cursor, limit=2, sort="-version"
    )
    assert next_page.indices == (2, 0)


def test_select_remembers_the_last_proxy(table: FleetTable) -> None:
    """An agent without any tunnel is found by the proxy it was last seen on; one that moved is not."""
    table.memory["last_proxies"][:, 0] = 2  # all were on proxy-1
    without = FleetTable(
        **{name: getattr(table, name) for name in table.__slots__ if not name.startswith("tunnel_")},
        tunnel_agents=table.tunnel_agents[1:2],
        tunnel_proxies=table.tunnel_proxies[1:2],
    )
    assert agent_query.select(without, agent_query.parse("proxy:proxy-1")).tolist() == [0, 2, 3, 4]
    assert agent_query.select(without, agent_query.parse("proxy:proxy-2")).tolist() == [1]


def test_narrow_adds_form_fields() -> None:
    """A form's fields and the search field hold together; a minus negates a state."""
    query = agent_query.narrow(
        agent_query.parse("web"), states=["stranded", "-healthy"], proxies=["p1"], auths=[]
    )
    assert (query.states, query.not_states) == ((State.STRANDED,), (State.HEALTHY,))
    assert (query.proxies, query.search_terms) == (("p1",), ("web",))


def test_page_cuts_and_ends(table: FleetTable) -> None:
    """Pages follow each other without gap or overlap, also when the last one is full."""
    first = agent_query.select_page(table, AgentQuery(), cursor=None, limit=3)
    assert (first.indices, first.total_count) == ((0, 1, 2), 5)
    second = agent_query.select_page(table, AgentQuery(), cursor=first.next_cursor, limit=2)
    assert (second.indices, second.next_cursor) == ((3, 4), None)


@pytest.mark.parametrize("cursor", ["", "3", "e1.", "e1.x", "other.1", "e1.-1"])
def test_page_wrong_cursor(table: FleetTable, cursor: str) -> None:
    """A cursor that is none of ours, or of another record, is refused."""
    with pytest.raises(QueryError):
        agent_query.select_page(table, AgentQuery(), cursor=cursor, limit=3)


@pytest.mark.parametrize(
    ("sort", "indices"),
    [
        ("", [0, 1, 2, 3, 4]),
        ("state", [1, 4, 2, 0, 3]),
        ("-state", [0, 3, 2, 1, 4]),
        ("since", [3, 4, 0, 2, 1]),
        ("-since", [1, 2, 0, 4, 3]),
        ("name", [0, 1, 2, 3, 4]),
        ("-name", [4, 3, 2, 1, 0]),
    ],
)
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_order_holds_over_pages(table: FleetTable, sort: str, indices: list[int], limit: int) -> None:
    """What needs people comes first; equal ones stand in map order; pages neither overlap nor leave out."""
    table.verdicts["since"] = [30.0, 50.0, 40.0, 10.0, 20.0]
    assert agent_query.select_sorted(table, AgentQuery(), sort).tolist() == indices
    agent_ids: list[int] = []
    cursor: str | None = None
    while True:
        page = agent_query.select_page(table, AgentQuery(), cursor=cursor, limit=limit, sort=sort)
        agent_ids += page.indices
        cursor = page.next_cursor
        if cursor is None:
            break
    assert agent_ids == indices


def test_order_while_agents_change(table: FleetTable) -> None:
    """An agent that moved to the front between two pages neither shifts the others nor hides them."""
    table.verdicts["since"] = [10.0, 20.0, 30.0, 40.0, 50.0]
    first = agent_query.select_page(table, AgentQuery(), cursor=None, limit=2, sort="since")
    table.verdicts["since"][1] = 60.0
    second = agent_query.select_page(table, AgentQuery(), cursor=first.next_cursor, limit=9, sort="since")
    assert (first.indices, second.indices) == ((0, 1), (2, 3, 4, 1))


def test_names_are_ordered_as_people_count() -> None:
    """agent-2 comes before agent-10."""
    table = FakeReader(states=[State.HEALTHY] * 11, as_of=time.time()).table("default", time.time())
    assert agent_query.select_sorted(table, AgentQuery(), "name").tolist() == list(range(11))


@pytest.mark.parametrize(
    ("sort", "cursor"),
    [("size", None), ("--name", None), ("name", "e1.1"), ("", "e1.1:2"), ("since", "e1.1:x")],
)
def test_order_nonsense_is_a_sentence(table: FleetTable, sort: str, cursor: str | None) -> None:
    """An order there is not, and a cursor of another order, are refused."""
    with pytest.raises(QueryError, match=r"\.$"):
        agent_query.select_page(table, AgentQuery(), cursor=cursor, limit=3, sort=sort)


@pytest.mark.parametrize("digits", [19, 40, 5000])
def test_cursor_beyond_all_numbers(table: FleetTable, digits: int) -> None:
    """A number that no column can hold was never in a cursor of ours."""
    huge = "9" * digits
    for sort, cursor in (("", f"e1.{huge}"), ("since", f"e1.1:{huge}"), ("since", f"e1.{huge}:-{huge}")):
        with pytest.raises(QueryError, match=r"Invalid cursor"):
            agent_query.select_page(table, AgentQuery(), cursor=cursor, limit=3, sort=sort)
