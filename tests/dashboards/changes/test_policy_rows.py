"""Policies in words; the rest is seen on the pages (tests/dashboards/changes/views)."""

from __future__ import annotations

import pytest

from dashboards.changes import policy_rows
from fleet.protocol.policies.env_policies import BY_NAME, HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.reconnect_schedule import INTERVAL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE

_RECONNECT = (
    '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}], '
    '"healthCheckConfig": {"serviceName": ""}}}'
)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (RFD_VARIABLE, "", "pick_first"),
        (RFD_VARIABLE, _RECONNECT, "reconnect, health check"),
        (RFD_VARIABLE, "{", "invalid"),
        (HTTP_CLOSE_VARIABLE, "true", "on"),
        (INTERVAL_VARIABLE, "", "never"),
        (INTERVAL_VARIABLE, "1h", "1h"),
    ],
)
def test_values_in_words(name: str, text: str, expected: str) -> None:
    """JSON as what it makes agents do."""
    assert policy_rows.format_policy_value(BY_NAME[name], text) == expected


def test_how_long_something_took() -> None:
    """Nothing while it does."""
    assert policy_rows.format_duration(1.0, 3.5) == "2.5 s"
    assert policy_rows.format_duration(1.0, 0.0) == ""
