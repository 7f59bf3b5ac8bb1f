"""Filters, order and pagination of the list of agents.

`state:stranded -state:healthy proxy:proxy-1 cause:backend label.env:prod -version:1.2.* id:7f2c web`: words with a
colon are filters, a minus negates a filter, the same key twice means either value, other words are searched in names
and ids. Versions and values of labels may have `*`, `?` and `[...]`. Pages and API share this.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.failure_impact import mask_only_tunnels
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.natural_order import natural_sort_key, version_sort_key
from fleet.vocabulary.verdicts import BACKEND_CAUSE, STATES_BY_URGENCY, State

Mask = npt.NDArray[np.bool_]
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
_FILTER_KEYS = ("state", "proxy", "only-proxy", "auth", "cause", "version", "id")
#: The auth backend of the cluster as a cause.
BACKEND_NAME = "backend"
#: Instead of a proxy or an auth: none is known.
NO_INSTANCE_NAME = "none"
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


def parse(text: str) -> AgentQuery:
    """Parse a filter. Raises QueryError."""
    try:
        tokens = shlex.split(text)
    except ValueError as error:
        raise QueryError(f"Invalid filter: {str(error).lower()}.") from error
    filters: dict[str, list[str]] = {}
    labels: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
    terms: list[str] = []
    for token in tokens:
        is_negated = token.startswith("-")
        key, colon, filter_value = token.removeprefix("-").partition(":")
        if colon and key in _FILTER_KEYS:
            filters.setdefault(f"-{key}" if is_negated else key, []).append(filter_value)
        elif colon and key.startswith("label.") and key != "label.":
            labels[is_negated].append((key.removeprefix("label."), filter_value))
        elif colon and key in {"label", "label."}:
            raise QueryError("A filter by label names the key of the label: label.env:prod.")
        elif colon:
            available_keys = f"{', '.join(_FILTER_KEYS)}, label.KEY"
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
    return AgentQuery(
        states=tuple(_parse_state(slug) for slug in filters.get("state", [])),
        not_states=tuple(_parse_state(slug) for slug in filters.get("-state", [])),
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
    mask = np.ones(len(table.ids), dtype=np.bool_)
    states = table.verdicts["state"]
    if query.states:
        mask &= np.isin(states, [int(included_state) for included_state in query.states])
    if query.not_states:
        mask &= ~np.isin(states, [int(excluded_state) for excluded_state in query.not_states])
    if query.proxies:
        mask &= _mask_by_proxies(table, query.proxies)
    if query.not_proxies:
        mask &= ~_mask_by_proxies(table, query.not_proxies)
    if query.only_proxies:
        mask &= mask_only_tunnels(table, _find_instance_indices(table, query.only_proxies))
    if query.not_only_proxies:
        mask &= ~mask_only_tunnels(table, _find_instance_indices(table, query.not_only_proxies))
    if query.auths:
        mask &= _mask_by_auths(table, query.auths)
    if query.not_auths:
        mask &= ~_mask_by_auths(table, query.not_auths)
    if query.versions or query.not_versions or query.labels or query.not_labels:
        mask &= _mask_by_attributes(table, query)
    if query.causes:
        mask &= _mask_by_causes(table, query.causes)
    if query.not_causes:
        mask &= ~_mask_by_causes(table, query.not_causes)
    if query.ids:
        mask &= _mask_by_ids(table, query.ids)
    if query.not_ids:
        mask &= ~_mask_by_ids(table, query.not_ids)
    for term in query.search_terms:
        mask &= _mask_by_term(table, term)
    return np.flatnonzero(mask)


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


def _find_instance_indices(table: FleetTable, names_or_ids: tuple[str, ...]) -> list[int]:
    accepted_names = set(names_or_ids)
    return [
        index
        for index, view in table.instances.items()
        if view.facts.name in accepted_names or view.facts.id in accepted_names
    ]


def _mask_by_proxies(table: FleetTable, names_or_ids: tuple[str, ...]) -> Mask:
    """Return the mask of agents with a tunnel to one of the proxies, or without tunnels and last seen on one."""
    proxies = _find_instance_indices(table, names_or_ids)
    mask = np.zeros(len(table.ids), dtype=np.bool_)
    mask[table.tunnel_agents[np.isin(table.tunnel_proxies, proxies)]] = True
    no_tunnel_mask = np.ones(len(table.ids), dtype=np.bool_)
    no_tunnel_mask[table.tunnel_agents] = False
    last_proxy_mask = np.isin(table.memory["last_proxies"], proxies)
    mask |= no_tunnel_mask & np.any(last_proxy_mask, axis=1)
    if NO_INSTANCE_NAME in names_or_ids:
        mask |= table.places["proxy"] == NO_INSTANCE
    return mask


def _mask_by_auths(table: FleetTable, names_or_ids: tuple[str, ...]) -> Mask:
    mask: Mask = np.isin(table.memory["last_auth"], _find_instance_indices(table, names_or_ids))
    if NO_INSTANCE_NAME in names_or_ids:
        mask |= table.places["auth"] == NO_INSTANCE
    return mask


def _mask_by_attributes(table: FleetTable, query: AgentQuery) -> Mask:
    """Return the mask of agents by version and labels; patterns are compared with the distinct ones only."""
    agent_count, attributes = len(table.ids), table.attributes
    mask = np.ones(agent_count, dtype=np.bool_)
    if query.versions:
        mask &= attributes.mask_by_version(_matcher_of(query.versions), agent_count)
    if query.not_versions:
        mask &= ~attributes.mask_by_version(_matcher_of(query.not_versions), agent_count)
    for patterns, is_negated in ((query.labels, False), (query.not_labels, True)):
        for key in dict.fromkeys(key for key, _ in patterns):
            matches = _label_matcher_of(key, [pattern for other_key, pattern in patterns if other_key == key])
            label_mask = attributes.mask_by_labels(matches, agent_count)
            mask &= ~label_mask if is_negated else label_mask
    return mask


def _label_matcher_of(key: str, patterns: Iterable[str]) -> Callable[[Mapping[str, str]], bool]:
    """Return whether labels have this key with a value that matches a pattern."""
    matches = _matcher_of(patterns)
    return lambda labels: key in labels and matches(labels[key])


def _matcher_of(patterns: Iterable[str]) -> Callable[[str], bool]:
    exact_texts, globs = set[str](), list[str]()
    for pattern in patterns:
        if any(mark in pattern for mark in "*?["):
            globs.append(pattern)
        else:
            exact_texts.add(pattern)
    return lambda text: text in exact_texts or any(fnmatchcase(text, glob) for glob in globs)


def _mask_by_causes(table: FleetTable, names_or_ids: tuple[str, ...]) -> Mask:
    """Return the mask of agents whose state has one of these causes."""
    causes = _find_instance_indices(table, names_or_ids)
    if BACKEND_NAME in names_or_ids:
        causes.append(BACKEND_CAUSE)
    mask: Mask = np.isin(table.verdicts["cause"], causes)
    return mask


def _mask_by_ids(table: FleetTable, ids: tuple[str, ...]) -> Mask:
    accepted_ids = set(ids)
    return np.fromiter((id_ in accepted_ids for id_ in table.ids), dtype=np.bool_, count=len(table.ids))


def _mask_by_term(table: FleetTable, term: str) -> Mask:
    return np.fromiter(
        (term in name.lower() or term in id_ for id_, name in zip(table.ids, table.names, strict=True)),
        dtype=np.bool_,
        count=len(table.ids),
    )
