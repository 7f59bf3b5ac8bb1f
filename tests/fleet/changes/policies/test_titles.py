"""Titles of policy changes, and values of policies in words."""

from __future__ import annotations

import pytest

from fleet.changes.policies.titles import describe_changes, format_policy_value
from fleet.protocol.policies.env_policies import BY_NAME, HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
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
        (INTERVAL_VARIABLE, "1h", "1 h"),
        (INTERVAL_VARIABLE, "soon", "soon"),
    ],
)
def test_values_in_words(name: str, text: str, expected: str) -> None:
    """JSON as what it makes agents do."""
    assert format_policy_value(BY_NAME[name], text) == expected


@pytest.mark.parametrize(
    ("before", "after", "title"),
    [
        ({}, {"proxy": {PROXY_TTL_VARIABLE: "60s"}}, "Set proxy announce TTL of all proxies to 1 min"),
        (
            {"auth": {HTTP_CLOSE_VARIABLE: "false"}},
            {"auth": {HTTP_CLOSE_VARIABLE: "true"}},
            "Turn on HTTP connection closing while unhealthy of all auths",
        ),
        (
            {},
            {"auth": {RFD_VARIABLE: _RECONNECT}},
            "Set agent reconnect mode of all auths to reconnect, health check",
        ),
        ({"p-1": {PROXY_TTL_VARIABLE: "1m"}}, {}, "Stop managing proxy announce TTL of proxy-1"),
        (
            {},
            {
                "auth": {AUTH_TTL_VARIABLE: "1m", HTTP_CLOSE_VARIABLE: "true"},
                "proxy": {INTERVAL_VARIABLE: "2h"},
            },
            "Set 2 policies of all auths and set periodic tunnel reconnects of all proxies to 2 h",
        ),
        ({"auth": {}}, {}, "Roll out the present desired values"),
    ],
)
def test_title_is_what_a_person_writes(
    before: dict[str, dict[str, str]], after: dict[str, dict[str, str]], title: str
) -> None:
    """A verb, the policy, its target and the value."""
    assert describe_changes(before, after, {"p-1": "proxy-1"}) == title
