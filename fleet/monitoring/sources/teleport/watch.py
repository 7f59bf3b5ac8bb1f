"""A watch of the agents of a Teleport cluster: lists once, then events, and the inventory about once a minute."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import grpc
from google.protobuf.message import DecodeError

from fleet.monitoring.sources import SourceError, source_error_of
from fleet.monitoring.sources.changes import FeedChanges
from fleet.monitoring.sources.presence import AgentChanges, ListedAgent
from fleet.monitoring.sources.source import SourceContext
from fleet.monitoring.sources.teleport.event_stream import EventStream, parse_event
from fleet.monitoring.sources.teleport.inventory import read_inventory
from fleet.monitoring.sources.teleport.refusals import describe_refusal
from fleet.monitoring.sources.teleport.resources import KINDS, read_resource_lists
from fleet.monitoring.sources.teleport.watched_agents import WatchedAgents
from fleet.transport.tls import TLSError
from fleet.vocabulary.capabilities import Capability

#: Share of the remaining seconds for the first event: the rest is for the lists, also without a watch.
_FIRST_EVENT_SHARE = 0.25
#: Seconds between two reads of the inventory, which has no events; fewer, at least, after a new host.
_INVENTORY_SECONDS = 60.0
_MIN_INVENTORY_SECONDS = 20.0
_INVENTORY_TIMEOUT_SECONDS = 30.0
#: Seconds until a watch is opened again, with a full list: an auth may lose events without ending the stream, and the
#: identity may have been renewed.
_LIFETIME_SECONDS = 600.0
#: The same while the role lacks verbs, which it may get.
_PARTIAL_LIFETIME_SECONDS = 120.0


async def open_watch(context: SourceContext) -> TeleportWatch | None:
    """Open a watch at an auth and wait for its first event; None, with the reason in the context, if it is refused.

    Raises SourceError.
    """
    target = context.target
    try:
        channel = context.connections.open_stream_channel(target.address, target.kind)
    except (TLSError, ValueError) as error:
        raise SourceError(str(error), has_response=False) from error
    stream = EventStream(channel, KINDS)
    seconds = context.remaining_seconds() * _FIRST_EVENT_SHARE
    try:
        first_event = await asyncio.to_thread(stream.await_first_event, seconds)
    except SourceError as error:
        stream.close()
        reason = describe_refusal(
            error, "changes of its resources (WatchEvents)", "read for its kinds of agents"
        )
        if reason is None:
            raise
        context.missing_capabilities[Capability.WATCH] = reason
        return None
    except BaseException:
        stream.close()
        raise
    # Versions without partial success accept all kinds or none.
    has_status = first_event.HasField("watch_status")
    kinds = {kind.kind for kind in first_event.watch_status.spec.kinds} if has_status else set(KINDS)
    return TeleportWatch(stream, frozenset(kinds), context.clock)


class TeleportWatch:
    """An open stream of events, and the agents that it changes. `fleet.monitoring.sources.watch.AgentWatch`."""

    def __init__(
        self,
        stream: EventStream,
        kinds: frozenset[str],
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`kinds`: those whose events are on the stream. `monotonic`: its clock for intervals, seconds."""
        self._stream = stream
        self._kinds = kinds
        self._clock = clock
        self._monotonic = monotonic
        self._agents = WatchedAgents((), {})
        # Spread, so that the watches of many clusters do not ask at the same time.
        self._inventory_at = monotonic() + _INVENTORY_SECONDS * random.uniform(0.5, 1.0)
        self._earliest_inventory_at = monotonic() + _MIN_INVENTORY_SECONDS
        self._opened_at = monotonic()
        self._lifetime = _LIFETIME_SECONDS * random.uniform(0.9, 1.1)
        self._inventory_reader: threading.Thread | None = None
        self._inventory: Mapping[str, str] | None = None
        self._missing_capabilities: dict[Capability, str] = {}

    @property
    def missing_capabilities(self) -> Mapping[Capability, str]:
        """Capabilities that the cluster does not have, with the reason as a sentence."""
        return dict(self._missing_capabilities)

    async def read_list(self, context: SourceContext) -> AgentChanges:
        """Return all agents: the events after INIT continue from before this list. Raises SourceError.

        Leaf clusters have no events: their list is read again when the watch is opened again, before they expire.
        """
        # Other lists of the round note in the context what they find; these findings last as long as the watch.
        own_context = replace(context, missing_capabilities={})
        resources, auth_by_host, refused_kinds, leaf_clusters = await read_resource_lists(own_context)
        missed_kinds = [kind for kind in KINDS if kind not in self._kinds and kind not in refused_kinds]
        if missed_kinds:
            own_context.missing_capabilities[Capability.WATCH] = (
                f"The role of Refloat's identity may list, but not watch, the kinds {', '.join(missed_kinds)}."
            )
        if refused_kinds or own_context.missing_capabilities:
            self._lifetime = _PARTIAL_LIFETIME_SECONDS
        self._missing_capabilities = own_context.missing_capabilities
        context.missing_capabilities.update(self._missing_capabilities)
        self._agents = WatchedAgents(resources, auth_by_host)
        agents = self._agents.take_changes(self._clock()) | dict(leaf_clusters.agents)
        return FeedChanges("", 0, full=True, complete=True, agents=agents)

    def take_changes(self, seconds: float) -> dict[str, ListedAgent | None]:
        """Return the agents that changed, after a request that the auth must answer. Raises SourceError."""
        if self._monotonic() - self._opened_at > self._lifetime:
            raise SourceError("it is time for a new one", has_response=True)
        self._stream.check(seconds)
        # After the check: if the stream ended meanwhile, this call reports it.
        for event in self._stream.take_events():
            self._agents.apply(parse_event(event))
        self._update_auths()
        return self._agents.take_changes(self._clock())

    def close(self) -> None:
        """Close the stream; it may be closed twice."""
        self._stream.close()

    def _update_auths(self) -> None:
        """Apply an inventory that arrived, and request the next one when it is due, in a thread of its own."""
        inventory, self._inventory = self._inventory, None
        if inventory is not None:
            self._agents.set_auths(inventory)
        now = self._monotonic()
        if self._agents.has_new_hosts:
            self._inventory_at = min(self._inventory_at, self._earliest_inventory_at)
        if now < self._inventory_at or (self._inventory_reader and self._inventory_reader.is_alive()):
            return
        self._inventory_at = now + _INVENTORY_SECONDS
        self._earliest_inventory_at = now + _MIN_INVENTORY_SECONDS
        self._inventory_reader = threading.Thread(
            target=self._read_inventory, name="teleport-inventory", daemon=True
        )
        self._inventory_reader.start()

    def _read_inventory(self) -> None:
        try:
            self._inventory = read_inventory(self._stream.channel, _INVENTORY_TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            reason = describe_refusal(
                source_error_of(error),  # type: ignore[arg-type]  # it is a grpc.Call too
                "an inventory (GetInstances)",
                "list and read for instance",
            )
            if reason is not None:
                self._missing_capabilities[Capability.AGENT_TO_AUTH] = reason
        except (ValueError, DecodeError):
            return  # the channel was closed meanwhile, or the next read may be better
        else:
            self._missing_capabilities.pop(Capability.AGENT_TO_AUTH, None)
