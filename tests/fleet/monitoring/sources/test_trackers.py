from __future__ import annotations

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.trackers import read_agent_report
from fleet.transport.poll_connections import Connections
from tests.fakes.instances import FakeProxy
from tests.fakes.source_contexts import make_source_context


async def test_report_is_read_through_the_tunnel(proxy: FakeProxy, connections: Connections) -> None:
    proxy.statuses["a"] = (
        '{"agent_id": "a", "tracker": {"desired_count": 2, "claimed_proxies": ["proxy-1-id"]}}'
    )
    report = await read_agent_report(make_source_context(connections, proxy), "a")
    assert report is not None
    assert (report.tracker.desired_count, report.tracker.claimed_proxies) == (2, ("proxy-1-id",))
    assert proxy.calls[-1].agent_id == "a"


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("nonsense", "the agent report is invalid: the document: Invalid JSON"),
        ('{"agent_id": "b"}', "another agent responded: 'b'"),
    ],
)
async def test_invalid_report_is_an_error(
    proxy: FakeProxy, connections: Connections, document: str, sentence: str
) -> None:
    """The error describes the problem."""
    proxy.statuses["a"] = document
    with pytest.raises(SourceError, match=sentence) as error_info:
        await read_agent_report(make_source_context(connections, proxy), "a")
    assert error_info.value.has_response


async def test_missing_tunnel_is_no_report(proxy: FakeProxy, connections: Connections) -> None:
    """The agent has moved; this is no error."""
    assert await read_agent_report(make_source_context(connections, proxy), "a") is None
