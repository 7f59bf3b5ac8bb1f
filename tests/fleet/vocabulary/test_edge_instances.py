"""State of gateways and tunnel servers after polls."""

from __future__ import annotations

import pytest

from fleet.vocabulary.edge_instances import (
    EdgeInstanceKind,
    EdgePoll,
    EdgeResponse,
    TunnelServerReport,
    TunnelTarget,
    poll_after,
)
from fleet.vocabulary.instances import InstanceState

_REPORT = TunnelServerReport(2, ("0.2",), (TunnelTarget("r:SSH", True, "edge", "", "127.0.0.1:1", 3),))
_GOOD = EdgeResponse(200, _REPORT, "")
_REFUSED = EdgeResponse(None, None, "10.0.0.1:1: connection refused")
_START = EdgePoll("edge-1", "10.0.0.1:1")
_STALE_AFTER = 15.0


def _state_after(*responses: EdgeResponse, age: float = 1.0) -> InstanceState:
    poll = _START
    for response in responses:
        poll = poll_after(poll, response, 100.0)
    return poll.state(100.0 + age, _STALE_AFTER)


@pytest.mark.parametrize(
    ("responses", "state"),
    [
        ([], InstanceState.UNKNOWN),
        ([_GOOD], InstanceState.OK),
        ([_GOOD, _REFUSED], InstanceState.OK),
        ([_GOOD, _REFUSED, _REFUSED], InstanceState.SILENT),
        ([_GOOD, _REFUSED, _REFUSED, _GOOD], InstanceState.OK),
        ([_REFUSED], InstanceState.UNKNOWN),
        ([_REFUSED, _REFUSED], InstanceState.SILENT),
        ([EdgeResponse(503, _REPORT, "")], InstanceState.UNHEALTHY),
        ([EdgeResponse(200, None, "no JSON")], InstanceState.UNHEALTHY),
        ([EdgeResponse(503, _REPORT, ""), _REFUSED], InstanceState.UNHEALTHY),
    ],
)
def test_state_follows_from_the_last_attempts(responses: list[EdgeResponse], state: InstanceState) -> None:
    """As for auths and proxies, two failures in a row mean that it is not responding."""
    assert _state_after(*responses) is state


def test_old_poll_tells_nothing() -> None:
    """Without pollers, neither OK nor not responding stays."""
    assert _state_after(_GOOD, age=_STALE_AFTER + 1) is InstanceState.UNKNOWN
    assert _state_after(_REFUSED, _REFUSED, age=_STALE_AFTER + 1) is InstanceState.UNKNOWN


def test_failure_keeps_the_last_report() -> None:
    """Kind, numbers and the time of the last response stay; the error is that of the failure."""
    poll = poll_after(poll_after(_START, _GOOD, 100.0), _REFUSED, 105.0)
    assert (poll.kind, poll.answered_at, poll.at) == (EdgeInstanceKind.TUNNEL_SERVER, 100.0, 105.0)
    assert poll.counts == {"clients": 2, "targets": 1, "sessions": 3, "missing": 0}
    assert poll.error == "10.0.0.1:1: connection refused"


@pytest.mark.parametrize(
    ("target", "is_missing"),
    [
        (TunnelTarget("r", False, "", "", "127.0.0.1:1", 0), True),
        (TunnelTarget("r", True, "", "", "127.0.0.1:1", 0), False),
        (TunnelTarget("r", False, "", "10.0.0.1:1", "127.0.0.1:1", 0), False),
        (TunnelTarget("r", False, "", "", "", 1), False),
    ],
)
def test_target_of_a_local_port_is_missing_if_nobody_serves_it(
    target: TunnelTarget, is_missing: bool
) -> None:
    """A target without a local port may come and go."""
    assert target.is_missing is is_missing


def test_kind_has_a_noun() -> None:
    """For pages and the terminal."""
    assert [kind.label for kind in EdgeInstanceKind] == ["gateway", "tunnel server"]
