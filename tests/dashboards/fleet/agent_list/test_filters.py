from __future__ import annotations

from urllib.parse import parse_qs

import pytest
from django.http import QueryDict

from dashboards.fleet import agent_query
from dashboards.fleet.agent_list import filters as list_filters
from dashboards.fleet.agent_list.filters import read_filters, read_list_query
from dashboards.fleet.agent_query import QueryError
from fleet.vocabulary.verdicts import State


def test_old_parameters_are_filters() -> None:
    """Links from before there was one field; a name with a blank or a quote stays one filter."""
    params = QueryDict("q=web&state=stranded&state=-healthy&proxy=proxy+1&auth=it's&q=web")
    filters = read_filters(params)
    assert filters.tokens == ("web", "state:stranded", "-state:healthy", "proxy:proxy 1", "auth:it's")
    assert agent_query.parse(filters.text) == filters.query == read_list_query(params)


@pytest.mark.parametrize(
    ("text", "tokens", "rejected", "sentence"),
    [
        ("state:stranded color:red web", ("state:stranded", "web"), "color:red", "Unknown filter 'color'"),
        ("web 'open state:healthy", ("web", "state:healthy"), "'open", "no closing quotation"),
        ("age:5m x:y", (), "age:5m x:y", "age:>5m"),
        (" ".join(map(str, range(30))), (), " ".join(map(str, range(30))), "up to 20 words"),
    ],
)
def test_wrong_filter_is_named_and_the_others_stay(
    text: str, tokens: tuple[str, ...], rejected: str, sentence: str
) -> None:
    """The text stays in the field. Nothing acts on a part of the filters."""
    params = QueryDict(mutable=True)
    params["q"] = text
    filters = read_filters(params)
    assert (filters.tokens, filters.rejected) == (tokens, rejected)
    assert sentence in filters.error
    with pytest.raises(QueryError):
        read_list_query(params)


def test_chip_is_removed_by_its_link() -> None:
    """Order, moment and group stay; the page begins anew."""
    params = QueryDict(
        "q=-state:at-risk+'label.team:data+x'+web&sort=-name&at=2026-11-23T10:14:07Z&after=e.5"
    )
    state, label, term = list_filters.chips_of(params, read_filters(params))
    assert (state.key, state.value, state.is_negated) == ("state", "at risk", True)
    assert (label.key, label.value, label.is_negated) == ("label team", "data x", False)
    assert (term.key, term.value) == ("", "web")
    assert parse_qs(label.removal_query) == {
        "q": ["-state:at-risk web"], "sort": ["-name"], "at": ["2026-11-23T10:14:07Z"],
    }  # fmt: skip


def test_state_link_adds_and_removes() -> None:
    """By slug or label; other filters stay."""
    params = QueryDict("q=state:at-risk+web")
    filters = read_filters(params)
    assert list_filters.state_query_of(params, filters, State.AT_RISK) == "q=web"
    assert parse_qs(list_filters.state_query_of(params, filters, State.STRANDED)) == {
        "q": ["state:at-risk web state:stranded"]
    }


@pytest.mark.parametrize("token", ["", "a b", "it's", 'a"b', "a\\b", "age:>5m", "label.a:*", "é"])
def test_quoted_filters_read_back(token: str) -> None:
    assert agent_query.split_filters(list_filters.join_filters([token, "x"])) == [token, "x"]


def test_readable_filters_have_no_quotes() -> None:
    assert list_filters.quote_filter("version:[*]-age:>5m") == "version:[*]-age:>5m"


def test_filters_of_other_keys() -> None:
    tokens = ["state:healthy", "-state:offline", "stateful", "proxy:a"]
    assert list_filters.without_key(tokens, "state") == ["stateful", "proxy:a"]
