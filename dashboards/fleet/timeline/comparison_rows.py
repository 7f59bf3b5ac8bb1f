"""The comparison of two moments as pages show it, and as CSV. Reads the tables of the moments."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from dashboards.fleet.agent_csv import to_csv_cell
from dashboards.fleet.timeline.comparison import (
    AgentDifference,
    AgentPlaces,
    Comparison,
    DifferenceKind,
)
from dashboards.shared.instance_states import ShownInstanceState, find_stranding_instances, shown_state_of
from dashboards.shared.rewind import Moment, MomentError, format_at, open_moment
from fleet.models.moments import to_moment
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import InstanceKind

CSV_COLUMNS = ("id", "name", "state_a", "state_b", "auth_a", "auth_b", "proxies_a", "proxies_b")
#: Lines of CSV that are made at a time.
_CHUNK_SIZE = 1000


@dataclass(frozen=True, slots=True)
class ComparedMoments:
    """Two moments and their comparison."""

    before: Moment
    after: Moment
    comparison: Comparison

    @property
    def before_at_text(self) -> str:
        """Return `?a=` of the first moment."""
        return format_at(self.before.now)

    @property
    def after_at_text(self) -> str:
        """Return `?b=` of the second moment: the present as the moment that it was."""
        return format_at(self.after.now)


@dataclass(frozen=True, slots=True)
class InstanceDifferenceRow:
    """An instance that differs; None: not known at that moment."""

    name: str
    kind: InstanceKind
    before: ShownInstanceState | None
    after: ShownInstanceState | None


def compare_moments(first_text: str, second_text: str, cluster: str) -> ComparedMoments:
    """Return the comparison of two moments, each the text of a time, or empty: the present.

    Raises MomentError, with the moment that is wrong, and StateUnavailableError.
    """
    before, after = (
        _open(text, name, cluster) for text, name in ((first_text, "Moment A"), (second_text, "Moment B"))
    )
    return ComparedMoments(before, after, Comparison(_table_of(before, cluster), _table_of(after, cluster)))


def describe_stale(compared: ComparedMoments) -> str:
    """Return which moment has no states because polling had stopped, as a sentence; empty if both have."""
    stale_moments = [
        f"{to_moment(moment.now):%Y-%m-%d %H:%M:%S} UTC"
        for moment, table in (
            (compared.before, compared.comparison.before),
            (compared.after, compared.comparison.after),
        )
        if table.stale
    ]
    if not stale_moments:
        return ""
    return (
        f"Polling had stopped at {' and at '.join(stale_moments)}: all agents except retired ones are shown as "
        "unknown."
    )


def present_instances(comparison: Comparison) -> list[InstanceDifferenceRow]:
    """Return instances that differ as rows."""
    stranding_before, stranding_after = (
        find_stranding_instances(table) for table in (comparison.before, comparison.after)
    )
    return [
        InstanceDifferenceRow(
            difference.name,
            difference.kind,
            _shown_or_none(difference.before, stranding_before),
            _shown_or_none(difference.after, stranding_after),
        )
        for difference in comparison.compare_instances()
    ]


def iterate_csv_chunks(comparison: Comparison, kind: DifferenceKind | None) -> Iterator[str]:
    """Yield the header line and one line per agent that differs, in parts."""
    indices = comparison.select(kind)
    yield _to_csv([CSV_COLUMNS])
    for start in range(0, len(indices), _CHUNK_SIZE):
        agents = comparison.describe_agents(indices[start : start + _CHUNK_SIZE])
        yield _to_csv([_to_cells(agent) for agent in agents])


def _open(text: str, name: str, cluster: str) -> Moment:
    try:
        return open_moment(text, cluster)
    except MomentError as error:
        raise MomentError(f"{name}: {error}") from error


def _table_of(moment: Moment, cluster: str) -> FleetTable:
    return moment.reader.table(cluster, moment.now)


def _shown_or_none(view: InstanceView | None, stranding: Set[int]) -> ShownInstanceState | None:
    return None if view is None else shown_state_of(view, is_stranding=view.facts.index in stranding)


def _to_cells(agent: AgentDifference) -> list[str]:
    old, new = agent.before, agent.after
    proxies = (" ".join(places.proxies) for places in (old, new))
    texts = (agent.id, agent.name, _slug_of(old), _slug_of(new), old.auth, new.auth, *proxies)
    return [to_csv_cell(text) for text in texts]


def _slug_of(places: AgentPlaces) -> str:
    return "" if places.state is None else places.state.slug


def _to_csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()
