"""The one door to the browser: typed events onto the channel layer. docs/flow.md, "Events".

Events are hints that may be lost on the way; sequence numbers tell, and who misses one starts over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, assert_never

from fleet.monitoring.events import StateDelta, Event, IncidentsChanged, InstancesChanged, LayoutChanged
from fleet.vocabulary.verdicts import State

#: The Channels message type; consumers have a method of this name.
MESSAGE_TYPE = "fleet.event"


class ChannelLayer(Protocol):
    """What we need of a channel layer."""

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        """Hand a message to everybody in a group."""


def group_of(cluster: str) -> str:
    """The group that hears of a cluster."""
    return f"fleet.{cluster}"


async def publish(layer: ChannelLayer, cluster: str, events: Iterable[Event]) -> None:
    """Hand events of one cluster to all who watch it, in order."""
    for event in events:
        await layer.group_send(group_of(cluster), {"type": MESSAGE_TYPE, "event": message_of(event)})


def message_of(event: Event) -> dict[str, Any]:
    """An event as consumers get it."""
    match event:
        case StateDelta():
            return {
                "type": "delta",
                "cluster": event.cluster,
                "epoch": event.epoch,
                "seq": event.seq,
                "as_of": event.as_of,
                "changes": [[index, int(state)] for index, state in event.changes],
                "counts": key_by_slug(event.counts),
            }
        case LayoutChanged():
            return {
                "type": "layout",
                "cluster": event.cluster,
                "epoch": event.epoch,
                "layout_version": event.layout_version,
            }
        case InstancesChanged():
            return {"type": "instances", "cluster": event.cluster}
        case IncidentsChanged():
            return {
                "type": "incidents",
                "cluster": event.cluster,
                "open": dict(event.open),
                "text": event.text,
                "severity": event.severity,
                "number": event.number,
            }
    assert_never(event)


def key_by_slug(counts: Mapping[State, int]) -> dict[str, int]:
    """Counts by the states' names."""
    return {state.slug: counts[state] for state in State}
