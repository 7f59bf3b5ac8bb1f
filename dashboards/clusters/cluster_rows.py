"""State of a cluster for its pages: one state with a sentence, from its row, its newest round and connection test."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dashboards.shared import presenters
from fleet.clusters.diag_addresses import format_lines
from fleet.clusters.test_report import ConnectionTestReport, StepVerdict
from fleet.models.clusters import Cluster
from fleet.monitoring.views import Summary
from fleet.source_plugins.registry import describe_missing_source, find_source, label_of
from fleet.vocabulary.clusters import AddressKind
from fleet.vocabulary.enum_types import LabelledEnum
from fleet.vocabulary.verdicts import State

#: Seconds in which a round with new values ends.
_FIRST_ROUND_SECONDS = 15.0


class ClusterState(LabelledEnum):
    """State of Refloat's connection to a cluster. The state of its agents is apart from it."""

    PAUSED = "paused", "Paused"
    NOT_INSTALLED = "not-installed", "Source not installed"
    NO_ADDRESSES = "no-addresses", "No addresses"
    TEST_FAILED = "test-failed", "Connection test failed"
    NO_DATA = "no-data", "No data yet"
    STALE = "stale", "Data out of date"
    UNREACHABLE = "unreachable", "Unreachable"
    CONNECTED = "connected", "Connected"


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster in the list, or at the top of its page."""

    cluster: Cluster
    state: ClusterState
    sentence: str
    product: str
    #: Without retired agents.
    agent_count: int
    stranded_count: int
    #: Not silenced, and with no cause that inhibits them.
    open_incident_count: int
    last_round_at: datetime | None
    last_round_age_ms: int | None

    @property
    def address_kind_label(self) -> str:
        """What the entries of its addresses are."""
        return AddressKind(self.cluster.address_kind).label

    @property
    def server_name(self) -> str:
        """The name that is expected in certificates, in words; empty if the product has none."""
        source = find_source(self.cluster.source)
        if source is not None and not source.form.has_server_name:
            return ""
        default_name = "" if source is None else source.form.default_server_name
        return self.cluster.tls_server_name or default_name or "By role"

    @property
    def diag_address_lines(self) -> list[str]:
        """The diag addresses, one line per instance."""
        return format_lines(self.cluster.diag_addresses)

    @property
    def edge_instance_lines(self) -> list[str]:
        """The diag addresses of gateways and tunnel servers, one line per instance."""
        return format_lines(self.cluster.edge_instances)


def make_row(
    cluster: Cluster,
    summary: Summary,
    report: ConnectionTestReport | None,
    now: float,
    open_incident_count: int = 0,
) -> ClusterRow:
    """Return the row of a cluster. `report`: its newest connection test. `now`: seconds since the epoch."""
    state, sentence = judge(cluster, summary, report, now)
    return ClusterRow(
        cluster,
        state,
        sentence,
        label_of(cluster.source),
        summary.agent_count - summary.counts.get(State.RETIRED, 0),
        summary.counts.get(State.STRANDED, 0),
        open_incident_count,
        presenters.to_moment_or_none(summary.as_of),
        presenters.age_ms_of(summary.as_of, now),
    )


def judge(
    cluster: Cluster, summary: Summary, report: ConnectionTestReport | None, now: float
) -> tuple[ClusterState, str]:
    """Return the state of a cluster, and a sentence with its cause; empty if it is connected."""
    if cluster.is_paused:
        return (
            ClusterState.PAUSED,
            "Refloat does not poll this cluster and opens no incidents until you resume it.",
        )
    source = find_source(cluster.source)
    if source is None:
        return ClusterState.NOT_INSTALLED, f"{describe_missing_source(cluster.source)}."
    noun = source.form.address_noun
    if not cluster.auths:
        return (
            ClusterState.NO_ADDRESSES,
            f"Enter at least one {noun} address. Until then, Refloat polls nothing.",
        )
    problem = None if report is None or report.is_running(now) else report.first_problem
    if problem is not None and problem.verdict is StepVerdict.FAILED:
        return ClusterState.TEST_FAILED, f"{problem.label}: {problem.text}"
    if summary.as_of is None:
        return (
            ClusterState.NO_DATA,
            "Refloat has not completed a round yet. Test the connection if this lasts.",
        )
    if summary.stale:
        return (
            ClusterState.STALE,
            "No round was completed recently. Test the connection; if no worker starts the test, start the workers.",
        )
    is_new = (
        report is not None and report.ended_at is not None and now - report.ended_at < _FIRST_ROUND_SECONDS
    )
    if is_new and not summary.instance_count:
        return (
            ClusterState.NO_DATA,
            "The connection test has ended without an error. The next round begins soon.",
        )
    active_count = summary.agent_count - summary.counts.get(State.RETIRED, 0)
    if not summary.instance_count or (active_count and summary.counts.get(State.UNKNOWN, 0) == active_count):
        return ClusterState.UNREACHABLE, f"No {noun} responds to Refloat. Test the connection."
    return ClusterState.CONNECTED, ""
