"""API routes of the connection test of a cluster. docs/reference/connection-test.md."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router
from ninja.errors import HttpError

from dashboards.clusters.cluster_lookup import require_row
from dashboards.shared import record_reader
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import REFUSAL_RESPONSES
from dashboards.shared.api.parameters import Schema
from fleet.clusters.test_report import ConnectionTestReport
from fleet.clusters.test_store import request_test
from fleet.models.access import Permission
from fleet.source_plugins.registry import SourceNotInstalledError

router = Router()
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)


class ConnectionTestStepItem(Schema):
    """A finished step of a connection test."""

    name: str
    """Name of the step: `resolve`, `connect`, `tls`, `identity`, `health`, `instances`, `agents`, `tunnels`,
    `readyz`, `networking`, `policies` or `clock`.
    """
    label: str
    """Label of the step on pages."""
    verdict: str
    """`ok`, `warning`, `failed` or `skipped`."""
    text: str
    """What was found."""
    remedy: str
    """What to do; empty if nothing."""
    seconds: float
    """How long the step took."""


class ConnectionTestReportItem(Schema):
    """The steps of one test so far, with their verdicts."""

    id: str
    """Id of the test."""
    is_running: bool
    """Whether more steps will follow."""
    is_lost: bool
    """Whether no worker started the test in time, or the worker ended before the test: start the workers."""
    verdict: str
    """Worst verdict of the steps so far: `ok`, `warning` or `failed`."""
    steps: list[ConnectionTestStepItem]
    """Finished steps."""
    pending_steps: list[str]
    """Names of the steps that have not ended."""
    requested_at: datetime
    """When the test was requested."""
    started_at: datetime | None
    """When a worker started it; null before that."""
    ended_at: datetime | None
    """When it ended; null before that."""


class ConnectionTestResponse(Schema):
    """The newest connection test of a cluster."""

    cluster: str
    """Id of the cluster."""
    test: ConnectionTestReportItem | None
    """Newest test; null if none was requested in the last hour."""


@router.post(
    "/clusters/{cluster}/test",
    summary="Test the connection to a cluster",
    auth=_ACT,
    response={200: ConnectionTestResponse, **REFUSAL_RESPONSES},
)
def test_cluster(request: HttpRequest, cluster: str) -> Any:
    """A worker starts the test at once: read it until `is_running` is false.

    The test changes nothing in the cluster.
    """
    row = require_row(cluster)
    if not row.auths:
        raise HttpError(409, f"The cluster {row.name} has no addresses. Enter at least one address first.")
    try:
        request_test(record_reader.connection_test_store(), row.pk, row.source)
    except SourceNotInstalledError as error:
        raise HttpError(409, f"{error}.") from error
    return _test_response_of(row.pk)


@router.get(
    "/clusters/{cluster}/test",
    summary="Get the newest connection test of a cluster",
    auth=_VIEW,
    response={200: ConnectionTestResponse, **REFUSAL_RESPONSES},
)
def get_cluster_test(request: HttpRequest, cluster: str) -> Any:
    """Each finished step has a verdict, a result, and what to do. Refloat keeps a test for an hour."""
    return _test_response_of(require_row(cluster).pk)


def _test_response_of(cluster: str) -> ConnectionTestResponse:
    report = record_reader.connection_test_store().read(cluster)
    return ConnectionTestResponse(cluster=cluster, test=None if report is None else _test_item_of(report))


def _test_item_of(report: ConnectionTestReport) -> ConnectionTestReportItem:
    now = record_reader.current_time()
    return ConnectionTestReportItem(
        id=report.test_id,
        is_running=report.is_running(now),
        is_lost=report.is_lost(now),
        verdict=report.verdict,
        steps=[
            ConnectionTestStepItem(
                name=step.name,
                label=step.label,
                verdict=step.verdict,
                text=step.text,
                remedy=step.remedy,
                seconds=step.seconds,
            )
            for step in report.steps
        ],
        pending_steps=list(report.pending_steps),
        requested_at=datetime.fromtimestamp(report.requested_at, UTC),
        started_at=_moment_of(report.started_at),
        ended_at=_moment_of(report.ended_at),
    )


def _moment_of(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
