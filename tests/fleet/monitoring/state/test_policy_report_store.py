"""The store of policy reports."""

from __future__ import annotations

import pytest
from redis import Redis

from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.policy_report_store import (
    PolicyReportStore,
    open_policy_report_store,
    unpack_node_response,
)
from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE, PolicySource, PolicyValue
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.vocabulary.node_policies import NodeReport, NodeReportResponse, PolicyReport

_REPORT = NodeReport(
    "a", "auth", "run", 2.5, "rev", "",
    {AUTH_TTL_VARIABLE: PolicyReport(
        PolicyValue(AUTH_TTL_VARIABLE, "1m", PolicySource.ENVIRONMENT),
        PolicyValue(AUTH_TTL_VARIABLE, "2m", PolicySource.FILE),
        PolicyValue(AUTH_TTL_VARIABLE, "1m", PolicySource.ENVIRONMENT),
    ), HTTP_CLOSE_VARIABLE: PolicyReport(
        PolicyValue(HTTP_CLOSE_VARIABLE, "false", PolicySource.DEFAULT),
        PolicyValue(HTTP_CLOSE_VARIABLE, "false", PolicySource.DEFAULT),
    )},
)  # fmt: skip


def test_round_trip(redis: Redis, prefix: str) -> None:
    """Responses and errors, separately for each cluster."""
    store = PolicyReportStore(redis, prefix)
    responses = {"a": NodeReportResponse(1.5, _REPORT), "b": NodeReportResponse(2.5, None, "unavailable")}
    store.write("default", responses)
    store.write("default", {})
    assert store.read("default") == responses
    assert store.read("other") == {}


def test_entries_of_another_version_are_left_out() -> None:
    """Invalid JSON and incomplete entries are ignored."""
    assert unpack_node_response(b"{") is None
    assert unpack_node_response(b'{"at": 1}') is None


def test_redis_down() -> None:
    """The same exception as for other Redis errors."""
    with pytest.raises(StateUnavailableError):
        open_policy_report_store("redis://127.0.0.1:1/0", "x").read("default")
