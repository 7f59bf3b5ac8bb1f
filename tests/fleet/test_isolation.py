"""One cluster's failure does not reach the next."""

from __future__ import annotations

import logging

import pytest
from django.db import OperationalError

from fleet.changes import ClusterBusyError
from fleet.isolation import for_each_change, for_each_cluster
from fleet.models import Change, Cluster
from fleet.monitoring.state import StateUnavailableError

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "error",
    [ClusterBusyError("busy"), StateUnavailableError("away"), OperationalError("gone"), KeyError("x")],
)
def test_failure_of_one_cluster_is_kept_from_the_next(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is: the log names the cluster, and the others have their turn."""
    for name in ("a", "b", "c"):
        Cluster.objects.create(id=name, name=name)
    reached = []

    def work(cluster: Cluster) -> None:
        reached.append(cluster.id)
        if cluster.id == "b":
            raise error

    with caplog.at_level(logging.WARNING):
        for_each_cluster("no round", work)
    assert sorted(reached) == ["a", "b", "c"]
    assert [record.getMessage().split(":")[:2] for record in caplog.records] == [["cluster b", " no round"]]


def test_clusters_that_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Only those."""
    reached: list[str] = []
    for_each_cluster("x", lambda cluster: reached.append(cluster.id), [Cluster(id="a")])
    assert reached == ["a"]


def test_failure_of_one_change_is_kept_from_the_next(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the change."""
    reached = []

    def work(change: Change) -> None:
        reached.append(change.pk)
        if change.pk == 1:
            raise ClusterBusyError("somebody else has the cluster")

    with caplog.at_level(logging.WARNING):
        for_each_change([Change(pk=1), Change(pk=2)], work)
    assert reached == [1, 2]
    assert [record.getMessage() for record in caplog.records] == ["change 1: somebody else has the cluster"]
