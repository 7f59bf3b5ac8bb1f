from __future__ import annotations

from typing import Any

from fleet.monitoring.events import IncidentsChanged, InstancesChanged, LayoutChanged, StateDelta
from fleet.monitoring.publish import group_of, publish
from fleet.vocabulary.verdicts import State

COUNTS = {**dict.fromkeys(State, 0), State.HEALTHY: 3, State.AT_RISK: 1}


class FakeChannelLayer:
    """A channel layer that records messages."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, Any]]] = []

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        """Record the message."""
        self.messages.append((group, message))


async def test_events_go_to_the_group_of_their_cluster() -> None:
    """In order, each as the consumer method `fleet_event` gets it."""
    layer = FakeChannelLayer()
    events = [
        StateDelta("east", "e", 7, 1.5, ((0, State.AT_RISK),), COUNTS),
        LayoutChanged("east", "e", "e-4-4"),
        InstancesChanged("east"),
        IncidentsChanged("east", {"critical": 1}, "CRIT east: proxy-1", "critical", 7),
    ]
    await publish(layer, "east", events)
    assert {group for group, _ in layer.messages} == {group_of("east")} == {"fleet.east"}
    assert {message["type"] for _, message in layer.messages} == {"fleet.event"}
    delta, layout, instances, incidents = (message["event"] for _, message in layer.messages)
    assert delta == {
        "type": "delta",
        "cluster": "east",
        "epoch": "e",
        "seq": 7,
        "as_of": 1.5,
        "changes": [[0, 5]],
        "counts": {state.slug: COUNTS[state] for state in State},
    }
    assert layout == {"type": "layout", "cluster": "east", "epoch": "e", "layout_version": "e-4-4"}
    assert instances == {"type": "instances", "cluster": "east"}
    assert incidents == {
        "type": "incidents",
        "cluster": "east",
        "open": {"critical": 1},
        "text": "CRIT east: proxy-1",
        "severity": "critical",
        "number": 7,
    }
