"""Isolation of errors between clusters and changes."""

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
def test_error_of_one_cluster_does_not_affect_others(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the cluster, and the other clusters are processed."""
    for name in ("a", "b", "c"):
        Cluster.objects.create(id=name, name=name)
    visited_ids = []

    def work(cluster: Cluster) -> None:
        visited_ids.append(cluster.id)
        if cluster.id == "b":
            raise error

    with caplog.at_level(logging.WARNING):
        for_each_cluster("no round", work)
    assert sorted(visited_ids) == ["a", "b", "c"]
    assert [record.getMessage().split(":")[:2] for record in caplog.records] == [["cluster b", " no round"]]


def test_only_given_clusters_are_visited(caplog: pytest.LogCaptureFixture) -> None:
    visited_ids: list[str] = []
    for_each_cluster("x", lambda cluster: visited_ids.append(cluster.id), [Cluster(id="a")])
    assert visited_ids == ["a"]


def test_error_of_one_change_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the change."""
    visited_ids = []

    def work(change: Change) -> None:
        visited_ids.append(change.pk)
        if change.pk == 1:
            raise ClusterBusyError("somebody else has the cluster")

    with caplog.at_level(logging.WARNING):
        for_each_change([Change(pk=1), Change(pk=2)], work)
    assert visited_ids == [1, 2]
    assert [record.getMessage() for record in caplog.records] == ["change 1: somebody else has the cluster"]
