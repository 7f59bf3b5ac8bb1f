"""Filters, order and pagination of the list of agents.

`state:stranded -state:healthy proxy:proxy-1 cause:backend label.env:prod -version:1.2.* age:>5m id:7f2c web`: words
with a colon are filters, a minus negates a filter, the same key twice means either value (ages: both), other words are
searched in names and ids. Versions and values of labels may have `*`, `?` and `[...]`. Pages and API share this.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dashboards.fleet import agent_masks
from dashboards.fleet.agent_comparisons import ComparisonError, NumberComparison, parse_age, parse_generation
from dashboards.fleet.agent_masks import Mask
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.failure_impact import mask_only_tunnels
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.natural_order import natural_sort_key, version_sort_key
from fleet.vocabulary.verdicts import STATES_BY_URGENCY, State

T = TypeVar("T")
SortKeys = npt.NDArray[np.int64]

#: Default and maximum number of agents on one page.
PAGE_SIZE = 100
MAX_LIMIT = 1000
#: Words in one filter. Each is searched in every name: many words in a large fleet would block the process for minutes.
MAX_SEARCH_TERMS = 20
#: Filters by version or label in one filter. Each is compared with every distinct version or label set.
MAX_ATTRIBUTE_FILTERS = 20
#: Maximum digits of a number in a cursor. No key or index has more, and numpy cannot compare larger numbers.
_MAX_DIGITS = 18
FILTER_KEYS = (
    "state", "cause", "proxy", "only-proxy", "auth", "mode", "version", "group", "generation", "age", "id",
)  # fmt: skip
#: Beginning of the filters by label: `label.env:prod`.
LABEL_PREFIX = "label."
#: Sort keys; a minus before a key reverses the order. The default is the order of the map.
SORT_KEYS = ("name", "state", "since", "version")
#: Cache by cluster: the names that were ranked last, and their ranks. The tuple of names stays the same between polls.
_name_ranks_by_cluster: dict[str, tuple[tuple[str, ...], SortKeys]] = {}


class QueryError(ValueError):
    """An invalid filter, sort key or cursor; the message is shown to the user."""


@dataclass(frozen=True, slots=True)
class AgentQuery:
    """One filter. An agent must match every tuple that is not empty; each tuple means *any of*."""

    states: tuple[State, ...] = ()
    not_states: tuple[State, ...] = ()
    #: Names or ids of instances.
    proxies: tuple[str, ...] = ()
    not_proxies: tuple[str, ...] = ()
    #: Proxies with the only tunnel of an agent: it has none with another proxy that responds.
    only_proxies: tuple[str, ...] = ()
    not_only_proxies: tuple[str, ...] = ()
    auths: tuple[str, ...] = ()
    not_auths: tuple[str, ...] = ()
    #: Patterns of the version; an empty one is for agents that report none.
    versions: tuple[str, ...] = ()
    not_versions: tuple[str, ...] = ()
    #: (key, pattern of the value). Labels with the same key mean *any of*, other keys must match too.
    labels: tuple[tuple[str, str], ...] = ()
    not_labels: tuple[tuple[str, str], ...] = ()
    #: Names or ids of the instances that cause the state, or `backend`.
    causes: tuple[str, ...] = ()
    not_causes: tuple[str, ...] = ()
    modes: tuple[ReconnectMode, ...] = ()
    not_modes: tuple[ReconnectMode, ...] = ()
    #: Groups and generations of proxies.
    groups: tuple[str, ...] = ()
    not_groups: tuple[str, ...] = ()
    generations: tuple[NumberComparison, ...] = ()
    not_generations: tuple[NumberComparison, ...] = ()
    #: Seconds in the present state. Every comparison must hold, and none of the excluded ones.
    ages: tuple[NumberComparison, ...] = ()
    not_ages: tuple[NumberComparison, ...] = ()
    #: Ids of agents.
    ids: tuple[str, ...] = ()
    not_ids: tuple[str, ...] = ()
    #: Each word must occur in the name or the id.
    search_terms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """One page of agents by index, in map order."""

    indices: tuple[int, ...]
    #: Number of agents that match the filter, on all pages.
    total_count: int
    #: Cursor of the next page; None on the last page.
    next_cursor: str | None


def _parse_state(slug: str) -> State:
    try:
        return State.parse(slug)
    except ValueError as error:
        raise QueryError(str(error)) from None


def _parse_mode(slug: str) -> ReconnectMode:
    for mode in ReconnectMode:
        if slug.lower().replace("-", "_") == mode.slug:
            return mode
    raise QueryError(
        f"Unknown reconnect mode {slug!r}. Use one of: {', '.join(mode.slug for mode in ReconnectMode)}."
    )


def split_filters(text: str) -> list[str]:
    """Return the words and filters of a text, without their quotes. Raises QueryError."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise QueryError(f"Invalid filter: {str(error).lower()}.") from error


def parse(text: str) -> AgentQuery:
    """Parse a filter. Raises QueryError."""
    return parse_filters(split_filters(text))


def parse_filters(tokens: Iterable[str]) -> AgentQuery:
    """Parse words and filters. Raises QueryError."""
    filters: dict[str, list[str]] = {}
    labels: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
    terms: list[str] = []
    for token in tokens:
        is_negated = token.startswith("-")
        key, colon, filter_value = token.removeprefix("-").partition(":")
        if colon and key in FILTER_KEYS:
            filters.setdefault(f"-{key}" if is_negated else key, []).append(filter_value)
        elif colon and key.startswith(LABEL_PREFIX) and key != LABEL_PREFIX:
            labels[is_negated].append((key.removeprefix(LABEL_PREFIX), filter_value))
        elif colon and key in {"label", LABEL_PREFIX}:
            raise QueryError("A filter by label names the key of the label: label.env:prod.")
        elif colon:
            available_keys = f"{', '.join(FILTER_KEYS)}, label.KEY"
            raise QueryError(f"Unknown filter {key!r}. Available filters: {available_keys}.")
        else:
            terms.append(token.lower())
    if len(terms) > MAX_SEARCH_TERMS:
        raise QueryError(f"Too many words: a filter can contain up to {MAX_SEARCH_TERMS} words.")
    versions, not_versions = filters.get("version", []), filters.get("-version", [])
    if len(versions) + len(not_versions) + len(labels[False]) + len(labels[True]) > MAX_ATTRIBUTE_FILTERS:
        raise QueryError(
            f"Too many filters: a filter can contain up to {MAX_ATTRIBUTE_FILTERS} versions and labels."
        )

    def parse_all(key: str, parse_one: Callable[[str], T]) -> tuple[T, ...]:
        try:
            return tuple(map(parse_one, filters.get(key, [])))
        except ComparisonError as error:
            raise QueryError(str(error)) from None

    return AgentQuery(
        states=parse_all("state", _parse_state),
        not_states=parse_all("-state", _parse_state),
        proxies=tuple(filters.get("proxy", [])),
        not_proxies=tuple(filters.get("-proxy", [])),
        only_proxies=tuple(filters.get("only-proxy", [])),
        not_only_proxies=tuple(filters.get("-only-proxy", [])),
        auths=tuple(filters.get("auth", [])),
        not_auths=tuple(filters.get("-auth", [])),
        versions=tuple(versions),
        not_versions=tuple(not_versions),
        labels=tuple(labels[False]),
        not_labels=tuple(labels[True]),
        causes=tuple(filters.get("cause", [])),
        not_causes=tuple(filters.get("-cause", [])),
        modes=parse_all("mode", _parse_mode),
        not_modes=parse_all("-mode", _parse_mode),
        groups=tuple(filters.get("group", [])),
        not_groups=tuple(filters.get("-group", [])),
        generations=parse_all("generation", parse_generation),
        not_generations=parse_all("-generation", parse_generation),
        ages=parse_all("age", parse_age),
        not_ages=parse_all("-age", parse_age),
        ids=tuple(filters.get("id", [])),
        not_ids=tuple(filters.get("-id", [])),
        search_terms=tuple(terms),
    )


def narrow(
    query: AgentQuery, *, states: Sequence[str], proxies: Sequence[str], auths: Sequence[str]
) -> AgentQuery:
    """Return `query` with the filters of form fields or parameters; `-stranded` negates. Raises QueryError."""
    return replace(
        query,
        states=(*query.states, *(_parse_state(slug) for slug in states if not slug.startswith("-"))),
        not_states=(*query.not_states, *(_parse_state(slug[1:]) for slug in states if slug.startswith("-"))),
        proxies=(*query.proxies, *proxies),
        auths=(*query.auths, *auths),
    )


def select(table: FleetTable, query: AgentQuery) -> npt.NDArray[np.intp]:
    """Return the indices of the agents that match `query`, in map order."""
    return np.flatnonzero(mask_of(table, query))


def mask_of(table: FleetTable, query: AgentQuery) -> Mask:
    """Return which agents match `query`."""
    mask = np.ones(len(table.ids), dtype=np.bool_)
    states = table.verdicts["state"]
    if query.states:
        mask &= np.isin(states, [int(included_state) for included_state in query.states])
    if query.not_states:
        mask &= ~np.isin(states, [int(excluded_state) for excluded_state in query.not_states])
    if query.modes:
        mask &= agent_masks.mask_by_modes(table, query.modes)
    if query.not_modes:
        mask &= ~agent_masks.mask_by_modes(table, query.not_modes)
    if query.generations:
        mask &= agent_masks.mask_by_generations(table, query.generations)
    if query.not_generations:
        mask &= ~agent_masks.mask_by_generations(table, query.not_generations)
    text_filters = (
        (agent_masks.mask_by_proxies, query.proxies, query.not_proxies),
        (_mask_by_only_proxies, query.only_proxies, query.not_only_proxies),
        (agent_masks.mask_by_auths, query.auths, query.not_auths),
        (agent_masks.mask_by_versions, query.versions, query.not_versions),
        (agent_masks.mask_by_causes, query.causes, query.not_causes),
        (agent_masks.mask_by_groups, query.groups, query.not_groups),
        (agent_masks.mask_by_ids, query.ids, query.not_ids),
    )
    for mask_by, included_texts, excluded_texts in text_filters:
        if included_texts:
            mask &= mask_by(table, included_texts)
        if excluded_texts:
            mask &= ~mask_by(table, excluded_texts)
    for label_mask in agent_masks.masks_by_labels(table, query.labels):
        mask &= label_mask
    for label_mask in agent_masks.masks_by_labels(table, query.not_labels):
        mask &= ~label_mask
    for comparison in query.ages:
        mask &= agent_masks.mask_by_age(table, comparison)
    for comparison in query.not_ages:
        mask &= ~agent_masks.mask_by_age(table, comparison)
    for term in query.search_terms:
        mask &= agent_masks.mask_by_term(table, term)
    return mask


def _mask_by_only_proxies(table: FleetTable, names_or_ids: tuple[str, ...]) -> Mask:
    return mask_only_tunnels(table, agent_masks.find_instance_indices(table, names_or_ids))


def select_sorted(table: FleetTable, query: AgentQuery, sort: str = "") -> npt.NDArray[np.intp]:
    """Return the indices of the agents that match `query`, in the order of `sort`. Raises QueryError."""
    matches = select(table, query)
    return matches if not sort else matches[np.lexsort((matches, _sort_keys_of(table, sort)[matches]))]


def select_page(
    table: FleetTable, query: AgentQuery, *, cursor: str | None, limit: int, sort: str = ""
) -> Page:
    """Return one page of up to `limit` agents, from `cursor` on. Raises QueryError for an invalid cursor."""
    matches = select(table, query)
    keys = np.zeros(len(table.ids), np.int64) if not sort else _sort_keys_of(table, sort)
    if sort:
        matches = matches[np.lexsort((matches, keys[matches]))]
    start_offset = 0
    if cursor is not None:
        # By key, not by position: agents that changed since that page neither move nor hide others.
        key, index = _parse_cursor(table, cursor, sort)
        start_offset = int(
            np.count_nonzero((keys[matches] < key) | ((keys[matches] == key) & (matches <= index)))
        )
    indices = tuple(int(index) for index in matches[start_offset : start_offset + limit])
    cursor_position = (
        f"{indices[-1]}:{int(keys[indices[-1]])}" if sort and indices else f"{indices[-1]}" if indices else ""
    )
    has_more = start_offset + limit < len(matches)
    return Page(
        indices=indices,
        total_count=len(matches),
        next_cursor=f"{table.epoch}.{cursor_position}" if has_more else None,
    )


def _sort_keys_of(table: FleetTable, sort: str) -> SortKeys:
    """Return the sort key of every agent; smaller keys come first."""
    column = sort.removeprefix("-")
    if column == "name":
        keys = _rank_names(table)
    elif column == "state":
        rank = np.zeros(len(State), np.int64)
        rank[[int(state) for state in STATES_BY_URGENCY]] = np.arange(len(STATES_BY_URGENCY))
        keys = rank[table.verdicts["state"]]
    elif column == "version":
        keys = _rank_versions(table)
    elif column == "since":
        keys = np.round(table.verdicts["since"] * 1000).astype(np.int64)
    else:
        raise QueryError(
            f"Unknown sort key {sort!r}. Available keys: {', '.join(SORT_KEYS)}; a leading - reverses the order."
        )
    return -keys if sort.startswith("-") else keys


def _rank_names(table: FleetTable) -> SortKeys:
    names, ranks = _name_ranks_by_cluster.get(table.cluster, ((), None))
    if ranks is None or names is not table.names:
        ranks = np.empty(len(table.names), np.int64)
        order = sorted(range(len(table.names)), key=lambda index: natural_sort_key(table.names[index]))
        ranks[np.array(order, np.intp)] = np.arange(len(order))
        _name_ranks_by_cluster[table.cluster] = (table.names, ranks)
    return ranks


def _rank_versions(table: FleetTable) -> SortKeys:
    """Return the rank of each agent's version in natural order; agents without a version come first."""
    versions = table.attributes.versions
    ranks = np.empty(len(versions), np.int64)
    ranks[sorted(range(len(versions)), key=lambda number: version_sort_key(versions[number]))] = np.arange(
        len(versions)
    )
    return ranks[table.attributes.version_numbers(len(table.ids))]


def _parse_cursor(table: FleetTable, cursor: str, sort: str) -> tuple[int, int]:
    """Return the key and the index in a cursor. Raises QueryError."""
    epoch, _, cursor_position = cursor.rpartition(".")
    index, colon, key = cursor_position.partition(":")
    numbers = (index, key.removeprefix("-")) if sort else (index,)
    if bool(colon) != bool(sort) or not all(_is_number(text) for text in numbers):
        raise QueryError("Invalid cursor. Start again without a cursor.")
    if epoch != table.epoch:
        raise QueryError("The cursor is out of date: the list was rebuilt. Start again without a cursor.")
    return int(key or 0), int(index)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MAX_DIGITS
