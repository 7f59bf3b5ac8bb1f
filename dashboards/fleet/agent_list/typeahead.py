"""Suggestions of the query bar of *Agents*: keys of filters, then values with the number of matching agents.

Numbers are of the agents that match the other filters. docs/reference/api.md, "Filter language".
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dashboards.fleet import agent_masks, agent_query
from dashboards.fleet.agent_comparisons import parse_age
from dashboards.fleet.agent_groups import label_keys_of
from dashboards.fleet.agent_list import tallies
from dashboards.fleet.agent_list.filters import quote_filter, without_key
from dashboards.fleet.agent_masks import BACKEND_NAME, NO_INSTANCE_NAME, Mask
from dashboards.fleet.agent_query import LABEL_PREFIX
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceKind
from fleet.vocabulary.natural_order import version_sort_key
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, STATES_BY_URGENCY, State

#: Most suggestions in all, of values while a key is not typed_text yet, and of names.
_MAX_SUGGESTIONS = 12
_MAX_VALUES_WITHOUT_KEY = 8
_MAX_NAMES = 5
#: Most values of one key that are counted one by one.
_MAX_GENERATIONS = 50
_AGES = ("<5m", "<1h", ">5m", ">1h", ">1d")
_KEY_HINTS: Mapping[str, str] = {
    "state": "state of the agent",
    "cause": "instance that causes the state",
    "proxy": "proxy of the agent",
    "only-proxy": "proxy of its only tunnel",
    "auth": "auth of the agent",
    "mode": "reconnect mode",
    "version": "reported version",
    "group": "group of its proxies",
    "generation": "generation of its proxies",
    "age": "time in the present state",
}
#: Keys whose values are suggested before a key is typed.
_KEYS_BY_VALUE = ("state", "proxy", "auth", "cause", "version")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One suggestion."""

    #: Text that replaces what is typed; ends with a colon for a key.
    text: str
    #: What is shown: the filter, and what it means.
    label: str
    hint: str
    #: Number of agents that match it and the other filters; None for a key.
    count: int | None = None


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of a key with the number of its agents."""

    text: str
    label: str
    count: int


def suggest(table: FleetTable, other_filters: Sequence[str], typed_text: str) -> list[Suggestion]:
    """Return suggestions for a filter that is being typed, beside `other_filters`. Raises QueryError for those."""
    text = typed_text.lstrip("'\"")
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    key, colon, part = text.partition(":")
    if colon:
        mask = _mask_without(table, other_filters, key)
        return [
            _suggestion_of(sign, key, value)
            for value in _find_matches(_values_of(table, key, mask), part)[:_MAX_SUGGESTIONS]
        ]
    keys = _suggest_keys(table, sign, text)
    if not text:
        return keys
    return [*keys, *_suggest_values(table, other_filters, sign, text)][:_MAX_SUGGESTIONS]


def _suggest_keys(table: FleetTable, sign: str, part: str) -> list[Suggestion]:
    hints = dict(_KEY_HINTS)
    for label_key in _label_keys_of(table):
        hints[f"{LABEL_PREFIX}{label_key}"] = "label of the agent"
    lower_part = part.lower()
    return [
        Suggestion(f"{sign}{key}:", f"{sign}{key}:", hint)
        for key, hint in hints.items()
        if key.startswith(lower_part) or (lower_part and lower_part in key.removeprefix(LABEL_PREFIX))
    ]


def _suggest_values(
    table: FleetTable, other_filters: Sequence[str], sign: str, part: str
) -> list[Suggestion]:
    suggestions: list[Suggestion] = []
    keys = [*_KEYS_BY_VALUE, *(f"{LABEL_PREFIX}{key}" for key in _label_keys_of(table))]
    masks: dict[tuple[str, ...], Mask] = {}
    for key in keys:
        if len(suggestions) >= _MAX_VALUES_WITHOUT_KEY:
            break
        other_tokens = tuple(without_key(other_filters, key))
        if other_tokens not in masks:
            masks[other_tokens] = agent_query.mask_of(table, agent_query.parse_filters(other_tokens))
        values = [
            value for value in _find_matches(_values_of(table, key, masks[other_tokens]), part) if value.count
        ]
        suggestions += [_suggestion_of(sign, key, value) for value in values[:_MAX_VALUES_WITHOUT_KEY]]
    names = [] if sign else _find_names(table, part)
    return [
        *suggestions[:_MAX_VALUES_WITHOUT_KEY],
        *(Suggestion(quote_filter(name), name, "agent") for name in names),
    ]


def _suggestion_of(sign: str, key: str, value: _Value) -> Suggestion:
    token = f"{sign}{key}:{value.text}"
    return Suggestion(quote_filter(token), f"{sign}{key}:{value.label}", "", value.count)


def _find_matches(values: Iterable[_Value], part: str) -> list[_Value]:
    """Return the values that contain the typed text; those that begin with it first, then those of most agents."""
    lower_part = part.strip("'\"").lower()
    matches = [
        value for value in values if lower_part in value.text.lower() or lower_part in value.label.lower()
    ]
    return sorted(matches, key=lambda value: not value.text.lower().startswith(lower_part))


def _mask_without(table: FleetTable, other_filters: Sequence[str], key: str) -> Mask:
    return agent_query.mask_of(table, agent_query.parse_filters(without_key(other_filters, key)))


def _values_of(table: FleetTable, key: str, mask: Mask) -> list[_Value]:
    """Return the values of a key; none for an unknown key."""
    if key.startswith(LABEL_PREFIX):
        return _label_values_of(table, key.removeprefix(LABEL_PREFIX), mask)
    values_of = _VALUES_BY_KEY.get(key)
    return [] if values_of is None else values_of(table, mask)


def _states_of(table: FleetTable, mask: Mask) -> list[_Value]:
    counts = np.bincount(table.verdicts["state"][mask], minlength=len(State))
    return [_Value(state.slug, state.label, int(counts[state])) for state in STATES_BY_URGENCY]


def _causes_of(table: FleetTable, mask: Mask) -> list[_Value]:
    causes, counts = np.unique(table.verdicts["cause"][mask], return_counts=True)
    values = []
    for cause, count in zip(causes.tolist(), counts.tolist(), strict=True):
        if cause == BACKEND_CAUSE:
            values.append(_Value(BACKEND_NAME, BACKEND_NAME, count))
        elif cause != NO_CAUSE and cause in table.instances:
            name = table.instances[cause].facts.name
            values.append(_Value(name, name, count))
    return _by_count(values)


def _instances_of(
    table: FleetTable, mask: Mask, memberships: tallies.Memberships, kind: InstanceKind
) -> list[_Value]:
    counts = memberships.count(mask, NO_INSTANCE + 1)
    values = [
        _Value(view.facts.name, view.facts.name, int(counts[index]))
        for index, view in table.instances.items()
        if view.facts.kind is kind
    ]
    if counts[NO_INSTANCE]:
        values.append(_Value(NO_INSTANCE_NAME, NO_INSTANCE_NAME, int(counts[NO_INSTANCE])))
    return _by_count(values)


def _proxies_of(table: FleetTable, mask: Mask) -> list[_Value]:
    return _instances_of(table, mask, tallies.proxies_of_agents(table), InstanceKind.PROXY)


def _only_proxies_of(table: FleetTable, mask: Mask) -> list[_Value]:
    return _instances_of(table, mask, tallies.only_proxies_of_agents(table), InstanceKind.PROXY)


def _auths_of(table: FleetTable, mask: Mask) -> list[_Value]:
    return _instances_of(table, mask, tallies.auths_of_agents(table), InstanceKind.AUTH)


def _modes_of(table: FleetTable, mask: Mask) -> list[_Value]:
    counts = np.bincount(table.heartbeats["mode"][mask], minlength=len(ReconnectMode))
    return _by_count(_Value(mode.slug, mode.slug, int(counts[mode])) for mode in ReconnectMode)


def _versions_of(table: FleetTable, mask: Mask) -> list[_Value]:
    counts = np.bincount(table.attributes.version_numbers(len(table.ids))[mask])
    return _by_count(
        _Value(glob.escape(version), version or "none", int(counts[number]))
        for number in np.flatnonzero(counts).tolist()
        for version in (table.attributes.versions[number],)
    )


def _label_values_of(table: FleetTable, key: str, mask: Mask) -> list[_Value]:
    counts = np.bincount(table.attributes.label_set_numbers(len(table.ids))[mask])
    totals = Counter[str]()
    for number in np.flatnonzero(counts).tolist():
        if key in (labels := table.attributes.label_sets[number]):
            totals[labels[key]] += int(counts[number])
    return _by_count(_Value(glob.escape(text), text, count) for text, count in totals.items())


def _groups_of(table: FleetTable, mask: Mask) -> list[_Value]:
    groups = {
        view.facts.group for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY
    } - {""}
    return _by_count(
        _Value(group, group, int(np.count_nonzero(mask & agent_masks.mask_by_groups(table, (group,)))))
        for group in sorted(groups, key=version_sort_key)[:_MAX_GENERATIONS]
    )


def _generations_of(table: FleetTable, mask: Mask) -> list[_Value]:
    generations = {
        view.facts.generation for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY
    }
    values = []
    for generation in sorted(generations, reverse=True)[:_MAX_GENERATIONS]:
        query = agent_query.parse_filters([f"generation:{generation}"])
        count = int(np.count_nonzero(mask & agent_masks.mask_by_generations(table, query.generations)))
        values.append(_Value(str(generation), str(generation), count))
    return values


def _ages_of(table: FleetTable, mask: Mask) -> list[_Value]:
    return [
        _Value(age, age, int(np.count_nonzero(mask & agent_masks.mask_by_age(table, parse_age(age)))))
        for age in _AGES
    ]


def _by_count(values: Iterable[_Value]) -> list[_Value]:
    return sorted(values, key=lambda value: (-value.count, version_sort_key(value.text)))


_VALUES_BY_KEY: Mapping[str, Callable[[FleetTable, Mask], list[_Value]]] = {
    "state": _states_of,
    "cause": _causes_of,
    "proxy": _proxies_of,
    "only-proxy": _only_proxies_of,
    "auth": _auths_of,
    "mode": _modes_of,
    "version": _versions_of,
    "group": _groups_of,
    "generation": _generations_of,
    "age": _ages_of,
}


def _label_keys_of(table: FleetTable) -> list[str]:
    return [key for key in label_keys_of(table) if ":" not in key]


#: By cluster: the names that were searched last, and all of them in lower case as one text, a line each.
_name_lines_by_cluster: dict[str, tuple[tuple[str, ...], str]] = {}


def _find_names(table: FleetTable, part: str) -> list[str]:
    """Return the first names that contain a text. One search of one long text is fast, one per name is not."""
    names, lines = _name_lines_by_cluster.get(table.cluster, ((), ""))
    if names is not table.names:
        names = table.names
        lines = "\n".join(name.lower().replace("\n", " ") for name in names)
        _name_lines_by_cluster[table.cluster] = (names, lines)
    lower_part = part.strip("'\"").lower()
    matches: dict[str, None] = {}
    position = lines.find(lower_part) if lower_part and "\n" not in lower_part else -1
    while position >= 0 and len(matches) < _MAX_NAMES:
        matches[names[lines.count("\n", 0, position)]] = None
        end = lines.find("\n", position)
        position = -1 if end < 0 else lines.find(lower_part, end)
    return list(matches)
