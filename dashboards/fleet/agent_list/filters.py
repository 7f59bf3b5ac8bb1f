"""The filters in an address of the list of agents: `?q=`, and `state`, `proxy` and `auth` of older links.

The page shows each accepted filter as a chip, and text that is not a filter in the field, with what would be right.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.http import QueryDict

from dashboards.fleet import agent_query
from dashboards.fleet.agent_query import LABEL_PREFIX, AgentQuery, QueryError
from fleet.vocabulary.verdicts import State

#: Parameters that links within the list keep, besides the filters.
_KEPT_PARAMETERS = ("group", "sort", "columns", "at")
#: Characters that have to be quoted in a filter.
_QUOTED_CHARACTERS = frozenset(" \t\r\n\"'\\")


@dataclass(frozen=True, slots=True)
class ListFilters:
    """The filters of an address."""

    #: Accepted filters and words, without quotes.
    tokens: tuple[str, ...] = ()
    query: AgentQuery = field(default_factory=AgentQuery)
    #: Text that is not accepted, as typed, and what would be right, as a sentence; both empty without any.
    rejected: str = ""
    error: str = ""

    @property
    def text(self) -> str:
        """Return the accepted filters as the text of one `?q=`."""
        return join_filters(self.tokens)


@dataclass(frozen=True, slots=True)
class FilterChip:
    """An accepted filter on the page."""

    #: The filter as text of the language: `-label.env:prod`.
    text: str
    #: Its key in words, empty for a word; its value; whether it excludes.
    key: str
    value: str
    is_negated: bool
    #: Query string of the list without this filter.
    removal_query: str


def read_filters(params: QueryDict) -> ListFilters:
    """Return the filters of an address; text that is no filter is left out and explained."""
    tokens: list[str] = []
    rejected: list[str] = []
    errors: list[str] = []
    for text in (*params.getlist("q"), *_filters_of_old_parameters(params)):
        try:
            text_tokens = agent_query.split_filters(text)
        except QueryError as error:
            # A quote is open: the words without quotes are as they would be without it.
            raw_tokens = text.split()
            text_tokens = [token for token in raw_tokens if not _QUOTED_CHARACTERS & set(token)]
            rejected += [token for token in raw_tokens if _QUOTED_CHARACTERS & set(token)]
            errors.append(str(error))
        for token in text_tokens:
            try:
                agent_query.parse_filters([token])
            except QueryError as error:
                rejected.append(quote_filter(token))
                errors.append(str(error))
            else:
                tokens.append(token)
    tokens = list(dict.fromkeys(tokens))
    try:
        query = agent_query.parse_filters(tokens)
    except QueryError as error:
        return ListFilters(rejected=join_filters(tokens), error=str(error))
    return ListFilters(tuple(tokens), query, " ".join(rejected), errors[0] if errors else "")


def read_list_query(params: QueryDict) -> AgentQuery:
    """Return the filters of an address as one query. Raises QueryError for text that is no filter."""
    filters = read_filters(params)
    if filters.error:
        raise QueryError(filters.error)
    return filters.query


def join_filters(tokens: Iterable[str]) -> str:
    """Return filters as text, quoted where necessary."""
    return " ".join(map(quote_filter, tokens))


def quote_filter(token: str) -> str:
    """Return a filter as text; quotes only where the language needs them, so that addresses stay readable."""
    return shlex.quote(token) if not token or _QUOTED_CHARACTERS & set(token) else token


def query_string_of(params: QueryDict, tokens: Iterable[str], **changes: str) -> str:
    """Return the query string of the first page of the list with these filters; `changes`: other parameters."""
    text = join_filters(tokens)
    pairs = [("q", text)] if text else []
    for name in _KEPT_PARAMETERS:
        texts = [changes[name]] if name in changes else params.getlist(name)
        pairs += [(name, text) for text in texts if text]
    return urlencode(pairs, safe=":,")


def chips_of(params: QueryDict, filters: ListFilters) -> list[FilterChip]:
    """Return the accepted filters as chips, in their order."""
    return [
        _chip_of(
            token, query_string_of(params, (*filters.tokens[:position], *filters.tokens[position + 1 :]))
        )
        for position, token in enumerate(filters.tokens)
    ]


def state_query_of(params: QueryDict, filters: ListFilters, state: State) -> str:
    """Return the query string of the list with the filter by a state added, or removed if it is there."""
    other_tokens = [token for token in filters.tokens if not _is_filter_by(token, state)]
    is_selected = len(other_tokens) < len(filters.tokens)
    return query_string_of(params, other_tokens if is_selected else [*other_tokens, f"state:{state.slug}"])


def without_key(tokens: Iterable[str], key: str) -> list[str]:
    """Return the filters without those that include or exclude by a key."""
    return [token for token in tokens if token.removeprefix("-").partition(":")[0] != key]


def _filters_of_old_parameters(params: QueryDict) -> list[str]:
    filters = [
        f"-state:{slug[1:]}" if slug.startswith("-") else f"state:{slug}"
        for slug in params.getlist("state")
        if slug
    ]
    filters += [
        f"{name}:{text.strip()}"
        for name in ("proxy", "auth")
        for text in params.getlist(name)[-1:]
        if text.strip()
    ]
    return [shlex.quote(text) for text in filters]


def _is_filter_by(token: str, state: State) -> bool:
    key, _, slug = token.partition(":")
    try:
        return key == "state" and State.parse(slug) is state
    except ValueError:
        return False


def _chip_of(token: str, removal_query: str) -> FilterChip:
    is_negated = token.startswith("-") and ":" in token
    key, colon, text = token.removeprefix("-").partition(":")
    if not colon:
        return FilterChip(token, "", token, is_negated=False, removal_query=removal_query)
    if key == "state":
        text = State.parse(text).label
    label = f"label {key.removeprefix(LABEL_PREFIX)}" if key.startswith(LABEL_PREFIX) else key
    return FilterChip(token, label, text or "none", is_negated, removal_query)
