from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.clusters.cluster_rows import ClusterState, judge, make_row
from fleet.clusters.test_report import ConnectionTestReport, ConnectionTestStep, StepName, StepVerdict
from fleet.models.clusters import Cluster
from fleet.monitoring.views import Summary
from fleet.vocabulary.verdicts import State

_NOW = 1000.0


def _summary(as_of: float | None = _NOW - 2, *, stale: bool = False) -> Summary:
    counts = dict.fromkeys(State, 0) | {State.HEALTHY: 3, State.RETIRED: 1}
    return Summary("a", as_of, 5.0, stale, counts, agent_count=4, instance_count=2)


def _report(verdict: StepVerdict, ended_at: float | None = _NOW) -> ConnectionTestReport:
    step = ConnectionTestStep(StepName.CONNECT, verdict, "a:1 refused the connection.")
    return ConnectionTestReport("1", "a", _NOW - 1, (step,), _NOW - 1, ended_at)


def _cluster(**values: object) -> Cluster:
    return Cluster(**{"id": "a", "name": "A", "auths": ["a:1"], **values})


@pytest.mark.parametrize(
    ("cluster", "summary", "report", "state"),
    [
        (_cluster(is_paused=True, auths=[]), _summary(stale=True), None, ClusterState.PAUSED),
        (_cluster(source="gone", auths=[]), _summary(stale=True), None, ClusterState.NOT_INSTALLED),
        (_cluster(auths=[]), _summary(None), None, ClusterState.NO_ADDRESSES),
        (_cluster(), _summary(stale=True), _report(StepVerdict.FAILED), ClusterState.TEST_FAILED),
        (_cluster(), _summary(), _report(StepVerdict.FAILED, None), ClusterState.CONNECTED),
        (_cluster(), _summary(), _report(StepVerdict.WARNING), ClusterState.CONNECTED),
        (_cluster(), _summary(None), None, ClusterState.NO_DATA),
        (_cluster(), _summary(stale=True), None, ClusterState.STALE),
        (_cluster(), _summary(), None, ClusterState.CONNECTED),
    ],
)
def test_state(
    cluster: Cluster, summary: Summary, report: ConnectionTestReport | None, state: ClusterState
) -> None:
    """What an operator decided comes before what Refloat found, and a test that runs decides nothing."""
    assert judge(cluster, summary, report, _NOW)[0] is state


@pytest.mark.parametrize(
    ("counts", "instance_count", "state"),
    [
        ({State.HEALTHY: 3}, 0, ClusterState.UNREACHABLE),
        ({State.UNKNOWN: 3, State.RETIRED: 1}, 2, ClusterState.UNREACHABLE),
        ({State.UNKNOWN: 2, State.HEALTHY: 1}, 2, ClusterState.CONNECTED),
        ({}, 2, ClusterState.CONNECTED),
    ],
)
def test_cluster_without_a_response_is_unreachable(
    counts: dict[State, int], instance_count: int, state: ClusterState
) -> None:
    """A round ends without evidence too. A new cluster may have no agents yet."""
    summary = replace(
        _summary(),
        counts=dict.fromkeys(State, 0) | counts,
        agent_count=sum(counts.values()),
        instance_count=instance_count,
    )
    assert judge(_cluster(), summary, None, _NOW)[0] is state


def test_cluster_waits_for_a_round_after_a_good_test() -> None:
    """The last round was of the time before the addresses or files were corrected."""
    summary = replace(_summary(), counts=dict.fromkeys(State, 0), agent_count=0, instance_count=0)
    report = _report(StepVerdict.OK)
    assert judge(_cluster(), summary, report, _NOW)[0] is ClusterState.NO_DATA
    assert judge(_cluster(), summary, report, _NOW + 15)[0] is ClusterState.UNREACHABLE


def test_failed_test_is_named_by_its_first_problem() -> None:
    _, sentence = judge(_cluster(), _summary(), _report(StepVerdict.FAILED), _NOW)
    assert sentence == "Connection: a:1 refused the connection."


def test_row() -> None:
    """Retired agents do not count; the product has a label."""
    row = make_row(_cluster(), _summary(), None, _NOW)
    assert (row.agent_count, row.last_round_age_ms, row.product) == (3, 2000, "Refloat")
    assert row.address_kind_label == "Addresses"


def test_server_name_is_that_of_the_cluster_or_of_the_product() -> None:
    names = [
        make_row(_cluster(**values), _summary(), None, _NOW).server_name
        for values in ({}, {"source": "teleport"}, {"tls_server_name": "auth.example"}, {"source": "gone"})
    ]
    assert names == ["By role", "teleport.cluster.local", "auth.example", "By role"]
