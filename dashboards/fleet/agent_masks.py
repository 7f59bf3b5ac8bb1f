"""Which agents match one filter of `dashboards.fleet.agent_query`: one boolean per agent, from whole columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from dashboards.fleet.agent_comparisons import NumberComparison
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceFacts, InstanceKind
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE

Mask = npt.NDArray[np.bool_]

#: The auth backend of the cluster as a cause.
BACKEND_NAME = "backend"
#: Instead of an instance: none is known, or there is no cause.
NO_INSTANCE_NAME = "none"


def find_instance_indices(table: FleetTable, names_or_ids: tuple[str, ...]) -> list[int]:
    """Return the indices of the instances with one of these names or ids."""
    accepted_names = set(names_or_ids)
    return [
        index
        for index, view in table.instances.items()
        if view.facts.name in accepted_names or view.facts.id in accepted_names
    ]


def mask_by_proxies(table: FleetTable, names_or_ids: tuple[str, ...]) -> Mask:
    """Return the mask of agents with a tunnel to one of the proxies, or without tunnels and last seen on one."""
    mask = _mask_by_proxy_indices(table, find_instance_indices(table, names_or_ids))
    if NO_INSTANCE_NAME in names_or_ids:
        mask |= table.places["proxy"] == NO_INSTANCE
    return mask


def _mask_by_proxies_that(table: FleetTable, accepts: Callable[[InstanceFacts], bool]) -> Mask:
    proxies = [
        index
        for index, view in table.instances.items()
        if view.facts.kind is InstanceKind.PROXY and accepts(view.facts)
    ]
    return _mask_by_proxy_indices(table, proxies)


def _mask_by_proxy_indices(table: FleetTable, proxies: list[int]) -> Mask:
    mask = np.zeros(len(table.ids), dtype=np.bool_)
    mask[table.tunnel_agents[np.isin(table.tunnel_proxies, proxies)]] = True
    no_tunnel_mask = np.ones(len(table.ids), dtype=np.bool_)
    no_tunnel_mask[table.tunnel_agents] = False
    mask |= no_tunnel_mask & np.any(np.isin(table.memory["last_proxies"], proxies), axis=1)
    return mask


def mask_by_auths(table: FleetTable, names_or_ids: tuple[str, ...]) -> Mask:
    """Return the mask of agents whose last heartbeat one of the auths received."""
    mask: Mask = np.isin(table.memory["last_auth"], find_instance_indices(table, names_or_ids))
    if NO_INSTANCE_NAME in names_or_ids:
        mask |= table.places["auth"] == NO_INSTANCE
    return mask


def mask_by_versions(table: FleetTable, patterns: tuple[str, ...]) -> Mask:
    """Return the mask of agents whose version matches a pattern; each distinct version is compared once."""
    return table.attributes.mask_by_version(_matcher_of(patterns), len(table.ids))


def masks_by_labels(table: FleetTable, filters: tuple[tuple[str, str], ...]) -> list[Mask]:
    """Return one mask per key of `filters`: agents whose label matches one of its patterns."""
    return [
        table.attributes.mask_by_labels(
            _label_matcher_of(key, [pattern for other_key, pattern in filters if other_key == key]),
            len(table.ids),
        )
        for key in dict.fromkeys(key for key, _ in filters)
    ]


def mask_by_modes(table: FleetTable, modes: tuple[ReconnectMode, ...]) -> Mask:
    """Return the mask of agents with one of the reconnect modes; without a heartbeat the mode is unknown."""
    mask: Mask = np.isin(table.heartbeats["mode"], [int(mode) for mode in modes])
    return mask


def mask_by_groups(table: FleetTable, groups: tuple[str, ...]) -> Mask:
    """Return the mask of agents with a tunnel to a proxy of the groups, or without tunnels and last seen on one."""
    return _mask_by_proxies_that(table, lambda facts: facts.group in groups)


def mask_by_generations(table: FleetTable, comparisons: tuple[NumberComparison, ...]) -> Mask:
    """Return the mask of agents by the generation of a proxy, as `mask_by_groups`: any comparison may hold."""
    return _mask_by_proxies_that(
        table, lambda facts: any(comparison.accepts(facts.generation) for comparison in comparisons)
    )


def mask_by_age(table: FleetTable, comparison: NumberComparison) -> Mask:
    """Return the mask of agents by the seconds in the present state, as of the round; none before the first one."""
    since = table.verdicts["since"]
    mask: Mask = (since > 0) & comparison.mask((table.as_of or 0.0) - since)
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


def mask_by_causes(table: FleetTable, names_or_ids: tuple[str, ...]) -> Mask:
    """Return the mask of agents whose state has one of these causes, or none."""
    causes = find_instance_indices(table, names_or_ids)
    if BACKEND_NAME in names_or_ids:
        causes.append(BACKEND_CAUSE)
    if NO_INSTANCE_NAME in names_or_ids:
        causes.append(NO_CAUSE)
    mask: Mask = np.isin(table.verdicts["cause"], causes)
    return mask


def mask_by_ids(table: FleetTable, ids: tuple[str, ...]) -> Mask:
    """Return the mask of agents with one of the ids."""
    accepted_ids = set(ids)
    return np.fromiter((id_ in accepted_ids for id_ in table.ids), dtype=np.bool_, count=len(table.ids))


def mask_by_term(table: FleetTable, term: str) -> Mask:
    """Return the mask of agents whose name or id contains a word in lower case."""
    return np.fromiter(
        (term in name.lower() or term in id_ for id_, name in zip(table.ids, table.names, strict=True)),
        dtype=np.bool_,
        count=len(table.ids),
    )
