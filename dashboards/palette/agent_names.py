"""Search of agents by name or id, within a few milliseconds per 100,000 agents.

The names of a cluster stay the same tuple between polls that change none, so their normalized form is kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dashboards.palette.ranking import MatchRank, normalize
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import STATES_BY_URGENCY, State

Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

#: Matches whose rank after PREFIX is computed, the most urgent ones: more would take longer than a person waits.
_MAX_RANKED = 20_000


@dataclass(frozen=True, slots=True)
class _NameIndex:
    """Names and ids of one cluster in the form in which they are compared."""

    names: tuple[str, ...]
    normalized_ids: tuple[str, ...]
    normalized_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AgentMatches:
    """Agents that match, best first: their indices up to a limit, and the number of all."""

    indices: tuple[int, ...]
    total_count: int


_index_by_cluster: dict[str, _NameIndex] = {}


def find_agents(table: FleetTable, query: str, limit: int) -> AgentMatches:
    """Return the agents whose name or id matches a normalized query; equal matches in the order of urgency."""
    index = _index_of(table)
    columns = (index.normalized_names, index.normalized_ids)
    terms = query.split()
    mask = np.ones(len(index.names), np.bool_)
    for term in terms:
        mask &= _merge_masks([[term in text for text in column] for column in columns])
    matches = np.flatnonzero(mask)
    if not terms or not len(matches):
        return AgentMatches((), 0)
    urgency = np.zeros(len(State), np.int64)
    urgency[[int(state) for state in STATES_BY_URGENCY]] = np.arange(len(STATES_BY_URGENCY))
    matches = matches[np.argsort(urgency[table.verdicts["state"][matches]], kind="stable")]
    order = np.argsort(_rank(columns, matches, query), kind="stable")
    return AgentMatches(tuple(int(number) for number in matches[order[:limit]]), len(matches))


def _index_of(table: FleetTable) -> _NameIndex:
    index = _index_by_cluster.get(table.cluster)
    if index is None or index.names is not table.names:
        index = _NameIndex(table.names, tuple(map(normalize, table.ids)), tuple(map(normalize, table.names)))
        _index_by_cluster[table.cluster] = index
    return index


def _merge_masks(masks: Sequence[Sequence[bool]]) -> Mask:
    """Return where one of the masks is true."""
    mask: Mask = np.logical_or.reduce([np.array(part, np.bool_) for part in masks])
    return mask


def _rank(columns: tuple[tuple[str, ...], ...], matches: Indices, query: str) -> Indices:
    """Return the rank of each match; of the ranks after PREFIX only for the first matches."""
    texts = [[column[number] for number in matches.tolist()] for column in columns]
    ranks = np.full(len(matches), int(MatchRank.ALL_WORDS), np.intp)
    if len(query.split()) == 1:
        ranks[:] = int(MatchRank.PART)
    starts_word = re.compile(rf"(?<![^\W_]){re.escape(query)}").search
    first_texts = [column[:_MAX_RANKED] for column in texts]
    masks = {
        MatchRank.PART: _merge_masks([[query in text for text in column] for column in first_texts]),
        MatchRank.WORD_START: _merge_masks(
            [[starts_word(text) is not None for text in column] for column in first_texts]
        ),
        MatchRank.PREFIX: _merge_masks([[text.startswith(query) for text in column] for column in texts]),
        MatchRank.EXACT: _merge_masks([[text == query for text in column] for column in texts]),
    }
    for rank, mask in masks.items():
        ranks[: len(mask)][mask] = int(rank)
    return ranks
