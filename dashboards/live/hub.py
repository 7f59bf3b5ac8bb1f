"""One live feed per cluster and process: events of the channel layer, and ticks. docs/reference/live.md.

A group per socket costs five times as much per delivery (measured), so a process joins the group of each cluster once
and fans out here. The feed reads the header of the stream every second. So data becomes stale even if all workers are
down, and lost events are noticed: a socket that is behind the header for two ticks starts over from a snapshot.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from channels.db import database_sync_to_async
from channels.layers import get_channel_layer

from dashboards.shared import headlines, record_reader
from dashboards.shared.fleet_activity import read_activity
from dashboards.shared.presenters import age_ms_of
from dashboards.shared.snapshot_frames import pack_columns
from fleet.alerts.headlines.headline import Headline, describe_stale_fleet
from fleet.alerts.notifications import format_iso
from fleet.monitoring.evidence import Timing
from fleet.monitoring.publish import group_of, key_by_slug
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.views import Snapshot, StreamHeader
from fleet.processes import background
from fleet.vocabulary.verdicts import State

logger = logging.getLogger(__name__)

#: Seconds between two reads of the header.
TICK_INTERVAL = 1.0
#: Seconds until the next attempt to join the group, after Redis failed.
_REJOIN_INTERVAL = 1.0
#: Maximum number of items that wait for one socket; a slower socket starts over from a snapshot.
_MAX_QUEUE_LENGTH = 64
#: Seconds in which sockets that start over share one snapshot, if no newer event arrived.
_MAX_SNAPSHOT_AGE = 1.0


@dataclass(frozen=True, slots=True)
class Delta:
    """The changes of one poll, encoded once for all sockets."""

    epoch: str
    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Hint:
    """A message without a sequence number: something other than agent states changed."""

    text: str
    layout_version: str = ""


_HeadlineKey = tuple[str, float | None, bool]


@dataclass(frozen=True, slots=True)
class HeadlineMessage:
    """The headline of a round with the counts of that round, encoded once for all sockets."""

    #: Epoch and end of the round, and whether its data was too old: what identifies a headline of the same incidents.
    key: _HeadlineKey
    text: str
    #: `text` without the round, to notice a change.
    content: str


@dataclass(frozen=True, slots=True)
class Tick:
    """The current header, with age applied; None if none was ever read."""

    header: StreamHeader | None


@dataclass(frozen=True, slots=True)
class ResyncRequest:
    """Request to send a snapshot: items were dropped, or the client requested it."""


FeedEvent = Delta | Hint | HeadlineMessage | Tick | ResyncRequest


class SocketQueue:
    """The queue of items of one socket."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[FeedEvent] = asyncio.Queue(_MAX_QUEUE_LENGTH)

    def offer(self, event: FeedEvent) -> None:
        """Add an item. If the queue is full, replace all waiting items by one ResyncRequest."""
        if self._queue.full():
            while not self._queue.empty():
                self._queue.get_nowait()
            event = ResyncRequest()
        self._queue.put_nowait(event)

    async def next(self) -> FeedEvent:
        """Wait for the next item."""
        return await self._queue.get()


class Feed:
    """The live feed of one cluster."""

    def __init__(self, cluster: str, tick_interval: float) -> None:
        self.cluster = cluster
        self.subscriptions: set[SocketQueue] = set()
        #: Position of the newest event.
        self._epoch, self._seq = "", 0
        self._header: StreamHeader | None = None
        self._snapshot: tuple[float, Snapshot] | None = None
        self._snapshot_lock = asyncio.Lock()
        self._headline: HeadlineMessage | None = None
        self._headline_lock = asyncio.Lock()
        self._headline_due = asyncio.Event()
        #: The last snapshot that was packed, and its frame.
        self._column_frame: tuple[Snapshot, bytes] | None = None
        self._group_joined = asyncio.Event()
        self._channel: str | None = None
        self._tick_interval = tick_interval
        self._tasks = [
            background.start(self._listen(), name=f"live events of {cluster}"),
            background.start(self._broadcast_ticks(), name=f"clock of {cluster}"),
            background.start(self._keep_headline(), name=f"headline of {cluster}"),
        ]

    async def subscribe(self, join_timeout: float = 2.0) -> SocketQueue:
        """Add a socket. Returns when the group is joined, or after `join_timeout` seconds while Redis is down."""
        subscription = SocketQueue()
        self.subscriptions.add(subscription)
        try:
            async with asyncio.timeout(join_timeout):
                await self._group_joined.wait()
        except TimeoutError:
            logger.warning("cluster %s: not subscribed to live events yet", self.cluster)
        except BaseException:
            # Cancelled: the caller never gets the subscription, so it must be removed here.
            self.subscriptions.discard(subscription)
            raise
        return subscription

    async def snapshot(self) -> Snapshot:
        """Return the state of every agent, not older than the newest event. Raises StateUnavailableError."""
        async with self._snapshot_lock:
            now = record_reader.current_time()
            if self._snapshot is not None:
                at, last_snapshot = self._snapshot
                is_current = not self._epoch or (
                    last_snapshot.epoch == self._epoch and last_snapshot.seq >= self._seq
                )
                if is_current and now - at < _MAX_SNAPSHOT_AGE:
                    return last_snapshot
            snapshot = await asyncio.to_thread(record_reader.reader().snapshot, self.cluster, now)
            self._snapshot = (now, snapshot)
            return snapshot

    async def headline(self, snapshot: Snapshot) -> HeadlineMessage | None:
        """Return the headline of the round of a snapshot, or of a newer one; None if it cannot be read."""
        message = self._headline
        if message is not None:
            epoch, as_of, is_stale = message.key
            if (epoch, is_stale) == (snapshot.epoch, snapshot.stale) and (as_of or 0.0) >= (
                snapshot.as_of or 0.0
            ):
                return message
        return await self._refresh_headline()

    async def pack_columns(self, snapshot: Snapshot) -> bytes:
        """Return the frame with all columns of a snapshot; sockets that start over together share it."""
        async with self._snapshot_lock:
            if self._column_frame is None or self._column_frame[0] is not snapshot:
                self._column_frame = snapshot, await asyncio.to_thread(pack_columns, snapshot)
            return self._column_frame[1]

    async def stop(self) -> None:
        """Leave the group and end all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        layer = get_channel_layer()
        if self._channel is not None and layer is not None:
            with contextlib.suppress(StateUnavailableError), map_redis_errors():
                await layer.group_discard(self._group, self._channel)

    @property
    def _group(self) -> str:
        return group_of(self.cluster)

    async def _listen(self) -> None:
        """Join the group and pass on events, for ever; the layer joins again after a connection is lost."""
        layer = get_channel_layer()
        assert layer is not None, "settings configure a channel layer"
        while self._channel is None:
            try:
                with map_redis_errors():
                    channel = await layer.new_channel()
                    await layer.group_add(self._group, channel)
                self._channel = channel
            except StateUnavailableError as error:
                logger.warning("cluster %s: cannot subscribe to live events: %s", self.cluster, error)
                await asyncio.sleep(_REJOIN_INTERVAL)
        self._group_joined.set()
        while True:
            message = await layer.receive(self._channel)
            try:
                self._handle_event(message["event"])
            except (KeyError, TypeError):
                logger.exception("cluster %s: invalid event: %r", self.cluster, message)

    async def _broadcast_ticks(self) -> None:
        """Send the header, with its age, to every socket at every tick."""
        is_record_down = False
        while True:
            now = record_reader.current_time()
            try:
                self._header = await asyncio.to_thread(
                    record_reader.reader().stream_header, self.cluster, now
                )
                header: StreamHeader | None = self._header
                if is_record_down:
                    logger.warning("cluster %s: the record can be read again", self.cluster)
                is_record_down = False
            except StateUnavailableError as error:
                header = None if self._header is None else mark_stale_if_old(self._header, now)
                if not is_record_down:
                    logger.warning("cluster %s: the record cannot be read: %s", self.cluster, error)
                is_record_down = True
            except Exception:
                # Whatever the error is, sockets must not show old data as current.
                logger.exception("cluster %s: the header of the record cannot be read", self.cluster)
                header = None if self._header is None else mark_stale_if_old(self._header, now)
            if header is None or self._snapshot is None or self._snapshot[1].stale != header.stale:
                self._snapshot = None
            is_current = (
                self._headline is not None
                and header is not None
                and (self._headline.key == (header.epoch, header.as_of, header.stale))
            )
            if not is_current:
                self._headline_due.set()
            self._broadcast(Tick(header))
            await asyncio.sleep(self._tick_interval)

    async def _keep_headline(self) -> None:
        """Make the headline again after each round and each change of incidents; several at once count as one."""
        while True:
            await self._headline_due.wait()
            self._headline_due.clear()
            await self._refresh_headline()

    async def _refresh_headline(self) -> HeadlineMessage | None:
        """Make the headline of the newest round, off the event loop, and send it to all sockets if it has changed.

        Returns None if nothing was ever read.
        """
        async with self._headline_lock:
            now = record_reader.current_time()
            try:
                incidents = await database_sync_to_async(headlines.read_open_incidents)(self.cluster)
                table = await asyncio.to_thread(record_reader.reader().table, self.cluster, now)
                activity = await database_sync_to_async(read_activity)(self.cluster, now)
                headline = await asyncio.to_thread(headlines.headline_of, table, incidents, now, activity)
            except Exception as error:
                # The next tick tries again. Until then the age of the data shows what sockets know.
                if not isinstance(error, StateUnavailableError):
                    logger.exception("cluster %s: the headline cannot be made", self.cluster)
                if self._header is None:
                    return None
                headline = describe_stale_fleet(mark_stale_if_old(self._header, now), now)
                if not headline.is_stale:
                    return self._headline
            previous_content = None if self._headline is None else self._headline.content
            message = self._headline = create_headline_message(headline, self.cluster)
            if message.content != previous_content:
                self._broadcast(message)
            return message

    def _handle_event(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        if kind != "layout":
            self._headline_due.set()
        if kind == "delta":
            self._epoch, self._seq = event["epoch"], event["seq"]
            self._broadcast(
                Delta(event["epoch"], event["seq"], format_delta(event, record_reader.current_time()))
            )
        elif kind == "layout":
            self._snapshot = None
            self._broadcast(create_layout_hint(event["layout_version"]))
        elif kind == "instances":
            self._broadcast(Hint(json.dumps({"type": "instances"})))
        elif kind == "incidents":
            fields = {name: event[name] for name in ("open", "text", "severity", "number")}
            self._broadcast(Hint(json.dumps({"type": "incidents", **fields})))

    def _broadcast(self, event: FeedEvent) -> None:
        for subscription in self.subscriptions:
            subscription.offer(event)


class Hub:
    """The feeds of one event loop. A feed ends with its last socket."""

    def __init__(self) -> None:
        self.feeds: dict[str, Feed] = {}
        #: Callbacks that request an access check of each socket.
        self.recheck_callbacks: set[Callable[[], None]] = set()

    async def subscribe(self, cluster: str) -> tuple[Feed, SocketQueue]:
        """Join the feed of a cluster; start it for the first socket."""
        feed = self.feeds.get(cluster)
        if feed is None:
            feed = self.feeds[cluster] = Feed(cluster, TICK_INTERVAL)
        try:
            return feed, await feed.subscribe()
        except BaseException:
            await self._end_if_empty(feed)
            raise

    async def leave(self, feed: Feed, subscription: SocketQueue) -> None:
        """Leave a feed; end it after the last socket."""
        feed.subscriptions.discard(subscription)
        await self._end_if_empty(feed)

    async def _end_if_empty(self, feed: Feed) -> None:
        if not feed.subscriptions and self.feeds.get(feed.cluster) is feed:
            del self.feeds[feed.cluster]
            await feed.stop()

    def recheck(self) -> None:
        """Request an access check of every socket."""
        for callback in list(self.recheck_callbacks):
            callback()


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = weakref.WeakKeyDictionary()


def current_hub() -> Hub:
    """Return the hub of the running event loop."""
    loop = asyncio.get_running_loop()
    hub = _hubs.get(loop)
    if hub is None:
        hub = _hubs[loop] = Hub()
    return hub


def recheck_soon(delay: float = 0.5) -> None:
    """Request access checks of all sockets of this process in `delay` seconds. Thread-safe."""
    for loop, hub in list(_hubs.items()):
        if not loop.is_closed():
            loop.call_soon_threadsafe(loop.call_later, delay, hub.recheck)


def count_sockets() -> dict[str, int]:
    """Return the number of open sockets of this process by cluster."""
    feeds = [feed for hub in list(_hubs.values()) for feed in list(hub.feeds.values())]
    return {feed.cluster: len(feed.subscriptions) for feed in feeds}


def mark_stale_if_old(header: StreamHeader, now: float) -> StreamHeader:
    """Return a header with age applied, while Redis is down and no new header can be read."""
    max_age = Timing(round_interval=header.interval).stale_after
    if header.stale or (header.as_of is not None and now - header.as_of <= max_age):
        return header
    retired_count = header.counts.get(State.RETIRED, 0)
    counts = {
        **dict.fromkeys(State, 0),
        State.UNKNOWN: header.agent_count - retired_count,
        State.RETIRED: retired_count,
    }
    return replace(header, stale=True, counts=counts)


def format_delta(event: Mapping[str, Any], now: float) -> str:
    """Return a delta as JSON, as sockets send it."""
    return json.dumps(
        {
            "type": "delta",
            "epoch": event["epoch"],
            "seq": event["seq"],
            "age_ms": age_ms_of(event["as_of"], now),
            "changes": event["changes"],
            "counts": event["counts"],
        },
        separators=(",", ":"),
    )


def create_headline_message(headline: Headline, cluster: str) -> HeadlineMessage:
    """Return a headline as sockets send it: with the round and the counts that it is about."""
    content = {
        "counts": key_by_slug(headline.counts),
        **headlines.present_headline(headline, cluster),
    }
    position = {"epoch": headline.epoch, "seq": headline.seq, "as_of": format_iso(headline.as_of)}
    return HeadlineMessage(
        key=(headline.epoch, headline.as_of, headline.is_stale),
        text=json.dumps({"type": "headline", **position, **content}, separators=(",", ":")),
        content=json.dumps(content),
    )


def create_layout_hint(version: str) -> Hint:
    """Return the hint that agents or home proxies were added to the layout."""
    return Hint(json.dumps({"type": "layout", "layout_version": version}), layout_version=version)
