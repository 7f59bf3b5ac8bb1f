from __future__ import annotations

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.trackers import read_agent_report
from fleet.transport.poll_connections import Connections
from tests.fakes.instances import FakeProxy
from tests.fakes.questions import question


async def test_agent_answers_through_its_tunnel(proxy: FakeProxy, connections: Connections) -> None:
    """Its own document, read."""
    proxy.statuses["a"] = '{"agent_id": "a", "tracker": {"desired_count": 2, "claimed": ["proxy-1-id"]}}'
    report = await read_agent_report(question(connections, proxy), "a")
    assert report is not None
    assert (report.tracker.desired_count, report.tracker.claimed) == (2, ("proxy-1-id",))
    assert proxy.calls[-1].agent_id == "a"


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("nonsense", "the agent report is invalid: the document: Invalid JSON"),
        ('{"agent_id": "b"}', "another agent responded: 'b'"),
    ],
)
async def test_no_answer_that_can_be_used(
    proxy: FakeProxy, connections: Connections, document: str, sentence: str
) -> None:
    """Whoever is wrong is named."""
    proxy.statuses["a"] = document
    with pytest.raises(SourceError, match=sentence) as failed:
        await read_agent_report(question(connections, proxy), "a")
    assert failed.value.has_response


async def test_agent_that_has_moved(proxy: FakeProxy, connections: Connections) -> None:
    """Its tunnel there is gone: that is nothing the agent said, nor a failure of it."""
    assert await read_agent_report(question(connections, proxy), "a") is None
