"""What instances say of their policies."""

from __future__ import annotations

from fleet.domain.node_policies import NodeReport, PolicyReport
from fleet.protocol.announce import AUTH_TTL_VARIABLE
from fleet.protocol.policies import HTTP_CLOSE_VARIABLE, Source, Value


def test_accepted_is_what_the_file_says() -> None:
    """What comes from elsewhere after a restart was not accepted over the network."""
    ttl = PolicyReport(
        Value(AUTH_TTL_VARIABLE, "10m", Source.DEFAULT), Value(AUTH_TTL_VARIABLE, "1m", Source.FILE)
    )
    close = Value(HTTP_CLOSE_VARIABLE, "true", Source.ENVIRONMENT)
    found = {AUTH_TTL_VARIABLE: ttl, HTTP_CLOSE_VARIABLE: PolicyReport(close, close)}
    assert NodeReport("a", "auth", "r", 1.0, "x", "", found).accepted == {AUTH_TTL_VARIABLE: "1m"}
