"""Gateways and tunnel servers of a cluster, as pages and the API show them. docs/reference/edge-instances.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from dashboards.shared import record_reader
from dashboards.shared.instance_states import ShownInstanceState
from dashboards.shared.pages import edge_instance_path_of
from dashboards.shared.presenters import age_ms_of, to_moment_or_none
from fleet.models.clusters import Cluster
from fleet.monitoring.evidence import Timing
from fleet.vocabulary.edge_instances import EdgeInstanceKind, EdgePoll, EdgeReport
from fleet.vocabulary.instances import RESPONSIVE_STATES, InstanceState
from fleet.vocabulary.natural_order import natural_sort_key


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """A gateway or tunnel server in the list, or at the top of its page."""

    name: str
    #: host:port of its diag port.
    address: str
    #: None until it reported something.
    kind: EdgeInstanceKind | None
    state: InstanceState
    shown_state: ShownInstanceState
    #: What is wrong, as a sentence; empty if nothing is.
    sentence: str
    #: What it reported last: `3 rules, 4 destinations`; empty before a report.
    summary: str
    #: End of the last poll, and of the last poll with a response.
    polled_at: datetime | None
    polled_age_ms: int | None
    answered_at: datetime | None
    answered_age_ms: int | None

    @property
    def path(self) -> str:
        """Path of its page below the prefix of its cluster."""
        return edge_instance_path_of(self.name)

    @property
    def is_current(self) -> bool:
        """Whether its report is of its last poll."""
        return self.state in RESPONSIVE_STATES and self.polled_at == self.answered_at


def read_edge_addresses(cluster: str) -> dict[str, str]:
    """Return the diag addresses of the edge instances of a cluster by name."""
    addresses = Cluster.objects.filter(pk=cluster).values_list("edge_instances", flat=True).first()
    return dict(addresses or {})


def read_edge_rows(cluster: str, addresses: Mapping[str, str], now: float) -> list[EdgeRow]:
    """Return the edge instances of a cluster by their names. `addresses`: those of the row of the cluster.

    Raises StateUnavailableError.
    """
    if not addresses:
        return []
    polls = record_reader.edge_store().polls(cluster)
    return [
        make_row(name, addresses[name], polls.get(name), now)
        for name in sorted(addresses, key=natural_sort_key)
    ]


def read_edge_report(cluster: str, row: EdgeRow) -> EdgeReport | None:
    """Return what an edge instance reported last; None before it reported anything. Raises StateUnavailableError."""
    # The report of another address stays stored until the next one.
    return None if row.kind is None else record_reader.edge_store().report(cluster, row.name)


def make_row(name: str, address: str, poll: EdgePoll | None, now: float) -> EdgeRow:
    """Return the row of an edge instance; a poll of another address does not count."""
    if poll is None or poll.address != address:
        poll = EdgePoll(name, address)
    stale_after = Timing(round_interval=settings.REFLOAT_ROUND_INTERVAL).stale_after
    state = poll.state(now, stale_after)
    return EdgeRow(
        name=name,
        address=address,
        kind=poll.kind,
        state=state,
        shown_state=ShownInstanceState(state.label, state.slug, f"instance-{state.slug}"),
        sentence=_sentence_of(poll, state),
        summary=summarize(poll.kind, poll.counts or {}),
        polled_at=to_moment_or_none(poll.at),
        polled_age_ms=age_ms_of(poll.at, now),
        answered_at=to_moment_or_none(poll.answered_at),
        answered_age_ms=age_ms_of(poll.answered_at, now),
    )


def _sentence_of(poll: EdgePoll, state: InstanceState) -> str:
    if not poll.at:
        return "Refloat has not polled this instance yet."
    if state is InstanceState.UNKNOWN and not poll.failure_count:
        return "Refloat has no current data: its workers do not poll this cluster."
    if state is InstanceState.OK:
        return ""  # a single failed poll
    if poll.error:
        return f"{poll.error}."
    if state is InstanceState.UNHEALTHY:
        return f"/readyz responds with {poll.readyz}: the instance is starting, shutting down or degraded."
    return ""


def summarize(kind: EdgeInstanceKind | None, counts: Mapping[str, int]) -> str:
    """Return the numbers of a report in words."""
    if kind is EdgeInstanceKind.GATEWAY:
        parts = [_count(counts, "rules", "rule"), _count(counts, "destinations", "destination")]
        if counts.get("ejected"):
            parts.append(f"{counts['ejected']} ejected")
        if counts.get("problems"):
            parts.append(_count(counts, "problems", "configuration problem"))
    elif kind is EdgeInstanceKind.TUNNEL_SERVER:
        parts = [_count(counts, "targets", "registered target"), _count(counts, "sessions", "session")]
        if counts.get("missing"):
            parts.append(f"{counts['missing']} not registered")
    else:
        return ""
    return ", ".join(parts)


def _count(counts: Mapping[str, int], name: str, noun: str) -> str:
    count = counts.get(name, 0)
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
