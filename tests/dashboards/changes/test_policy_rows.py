"""Policies in words; the rest is seen on the pages (tests/dashboards/changes/views)."""

from __future__ import annotations

from dashboards.changes import policy_rows

_RECONNECT = (
    '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}], '
    '"healthCheckConfig": {"serviceName": ""}}}'
)


def test_how_long_something_took() -> None:
    """Nothing while it does."""
    assert policy_rows.format_duration(1.0, 3.5) == "2.5 s"
    assert policy_rows.format_duration(1.0, 0.0) == ""
