"""Publication of typed events to browsers over the channel layer. docs/reference/live.md, "Events".

Events may be lost; a client that finds a gap in the sequence numbers loads a new snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, assert_never

from fleet.monitoring.events import Event, IncidentsChanged, InstancesChanged, LayoutChanged, StateDelta
from fleet.vocabulary.verdicts import State

#: Channels message type; consumers have a method of this name.
MESSAGE_TYPE = "fleet.event"


class ChannelLayer(Protocol):
    """Methods of a channel layer that are used here."""

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        """Send a message to every member of a group."""


def group_of(cluster: str) -> str:
    """Return the name of the group with the subscribers of a cluster."""
    return f"fleet.{cluster}"


async def publish(layer: ChannelLayer, cluster: str, events: Iterable[Event]) -> None:
    """Send events of a cluster to its subscribers, in order."""
    for event in events:
        await layer.group_send(group_of(cluster), {"type": MESSAGE_TYPE, "event": message_of(event)})


def message_of(event: Event) -> dict[str, Any]:
    """Return an event as the message that consumers receive."""
    match event:
        case StateDelta():
            return {
                "type": "delta",
                "cluster": event.cluster,
                "epoch": event.epoch,
                "seq": event.seq,
                "as_of": event.as_of,
                "changes": [list(map(int, change)) for change in event.changes],
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
                "open": dict(event.open_counts),
                "text": event.text,
                "severity": event.severity,
                "number": event.number,
            }
    assert_never(event)


def key_by_slug(counts: Mapping[State, int]) -> dict[str, int]:
    """Return counts by slug of the state."""
    return {state.slug: counts[state] for state in State}
