from __future__ import annotations

import pytest

from fleet.sources import SourceFailed
from fleet.sources.channels import Connections
from fleet.sources.trackers import ask_tracker
from tests.fakes.instances import FakeProxy


async def test_agent_answers_through_its_tunnel(proxy: FakeProxy, connections: Connections) -> None:
    """Its own document, read."""
    proxy.statuses["a"] = '{"agent_id": "a", "tracker": {"desired_count": 2, "claimed": ["proxy-1-id"]}}'
    report = await ask_tracker(connections.channel(proxy.address), "a", timeout=10)
    assert (report.tracker.desired_count, report.tracker.claimed) == (2, ("proxy-1-id",))
    assert proxy.calls[-1].agent_id == "a"


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("nonsense", "what the agent says of itself cannot be read: the document: Invalid JSON"),
        ('{"agent_id": "b"}', "another agent answered: 'b'"),
        (None, "not found: no live tunnel of agent 'a' is here"),
    ],
)
async def test_no_answer_that_can_be_used(
    proxy: FakeProxy, connections: Connections, document: str | None, sentence: str
) -> None:
    """Whoever is wrong is named."""
    if document is not None:
        proxy.statuses["a"] = document
    with pytest.raises(SourceFailed, match=sentence) as failed:
        await ask_tracker(connections.channel(proxy.address), "a", timeout=10)
    assert failed.value.answered
