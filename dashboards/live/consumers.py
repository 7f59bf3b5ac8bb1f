"""The WebSocket of a fleet: hello, snapshot, every change in order, and the age of the data. docs/reference/live.md."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth.signals import user_logged_out
from django.db import Error
from typing_extensions import override

from dashboards.live.hub import (
    Delta,
    Feed,
    HeadlineMessage,
    Hint,
    ResyncRequest,
    SocketQueue,
    Tick,
    create_layout_hint,
    current_hub,
    recheck_soon,
)
from dashboards.live.revocation import TRY_AGAIN_LATER, RecheckSettings, wait_for_close_code
from dashboards.live.sockets import close_code_of
from dashboards.shared import record_reader
from dashboards.shared.permissions import AccessRequirement
from dashboards.shared.presenters import age_ms_of
from dashboards.shared.snapshot_frames import COLUMNS, ENCODING
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.views import StreamHeader
from fleet.processes import background

logger = logging.getLogger(__name__)

#: Seconds between two beats: one per tick. Between two beats, a page lets the age grow.
BEAT_INTERVAL = 0.9
#: Seconds between two access checks of an open socket; until the next one after a failed one; and without a result
#: until the socket is closed. A socket must end within 10 s of sign-out, even if the database is down.
RECHECK_INTERVAL = 5.0
RECHECK_RETRY_INTERVAL = 1.0
RECHECK_TIMEOUT = 9.0
#: Seconds between two snapshots that a client can request.
RESYNC_INTERVAL = 1.0
#: Maximum characters of a client frame; `resync` has 20. The web server refuses frames of more than 4 KiB itself.
MAX_FRAME_LENGTH = 1024
#: Close codes of RFC 6455: the frame is too large; internal error.
FRAME_TOO_LARGE = 1009
INTERNAL_ERROR = 1011


class FleetConsumer(AsyncWebsocketConsumer):  # type: ignore[misc] # channels is untyped
    """One client of one cluster. The snapshot it was sent, plus every delta since, equals the states of the fleet."""

    access = AccessRequirement(permission=Permission.VIEW_FLEET)
    # The hub joins groups. A channel per socket would cost a subscription, and fail while Redis is down.
    channel_layer_alias = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._feed: Feed | None = None
        self._subscription: SocketQueue | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._recheck_event = asyncio.Event()
        self._last_resync_at = -RESYNC_INTERVAL
        self._is_resync_pending = False
        # Position of the data that this socket was sent: None before the first hello.
        self._epoch: str | None = None
        self._seq = 0
        self._layout_version = ""
        self._stale: bool | None = None
        #: The newest headline that this socket was sent.
        self._headline: HeadlineMessage | None = None
        # At the last tick, the header named newer events, which have not arrived.
        self._is_behind = False
        self._last_beat_at = 0.0

    @property
    def cluster(self) -> str:
        """Return the cluster of the URL."""
        return str(self.scope["url_route"]["kwargs"].get("cluster", DEFAULT_CLUSTER))

    @property
    def has_columns(self) -> bool:
        """Return whether the client requested all columns of the map: `?columns=1`."""
        query = self.scope.get("query_string", b"").decode("latin-1")
        return parse_qs(query).get("columns") == ["1"]

    @override
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the socket, and always clean up: after an error, `disconnect` is not called."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._leave()

    @override
    async def connect(self) -> None:
        """Accept, so that the client sees a close code; then serve, or close with the reason."""
        await self.accept()
        confirmed_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(RECHECK_TIMEOUT):
                code = await self._find_close_code()
        except (Error, TimeoutError) as error:
            logger.warning(
                "cluster %s: socket refused, its access cannot be checked: %r", self.cluster, error
            )
            code = TRY_AGAIN_LATER
        if code is not None:
            await self.close(code)
            return
        # First the group, then the snapshot, so that no event is lost between them.
        self._feed, self._subscription = await current_hub().subscribe(self.cluster)
        current_hub().recheck_callbacks.add(self._recheck_event.set)
        self._tasks = [
            background.start(self._send_feed(), name="pump of a socket"),
            background.start(self._guard_access(confirmed_at), name="guard of a socket"),
        ]

    @override
    async def disconnect(self, code: int) -> None:
        """Leave the feed, after the client has closed the socket."""
        await self._leave()

    async def _leave(self) -> None:
        """Leave the feed and end both tasks; a second call does nothing."""
        current_hub().recheck_callbacks.discard(self._recheck_event.set)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        feed, subscription, self._subscription = self._feed, self._subscription, None
        if feed is not None and subscription is not None:
            await current_hub().leave(feed, subscription)

    @override
    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Handle `resync`, at most once per second. Other messages are ignored: a newer page may send them."""
        if len(text_data or bytes_data or "") > MAX_FRAME_LENGTH:
            await self._end(FRAME_TOO_LARGE)
            return
        try:
            message = json.loads(text_data or "")
        except (ValueError, RecursionError):  # thousands of nested brackets
            return
        if not isinstance(message, dict) or message.get("type") != "resync" or self._is_resync_pending:
            return
        if self._subscription is None:
            return
        self._is_resync_pending = True
        wait_seconds = max(0.0, self._last_resync_at + RESYNC_INTERVAL - time.monotonic())
        asyncio.get_running_loop().call_later(wait_seconds, self._subscription.offer, ResyncRequest())

    async def _guard_access(self, confirmed_at: float) -> None:
        """Close the socket soon after its session, role or token ends, or if they cannot be checked."""
        code = INTERNAL_ERROR
        try:
            settings = RecheckSettings(RECHECK_INTERVAL, RECHECK_RETRY_INTERVAL, RECHECK_TIMEOUT)
            code = await wait_for_close_code(
                self._find_close_code, self._recheck_event, settings, confirmed_at
            )
        except Exception:
            logger.exception("cluster %s: socket closed, its access check failed", self.cluster)
        await self._end(code)

    async def _end(self, code: int) -> None:
        """Close the socket and stop sending."""
        for sending_task in self._tasks[:1]:
            sending_task.cancel()
        with contextlib.suppress(OSError, RuntimeError):
            await self.close(code)

    async def _find_close_code(self) -> int | None:
        """Return the close code for this socket; None if it may stay open. Raises `Error` of the database."""
        code: int | None = await database_sync_to_async(close_code_of)(self.scope, self.access, self.cluster)
        return code

    async def _send_feed(self) -> None:
        """Send the snapshot, then all items of the feed."""
        assert self._subscription is not None, "connect subscribed"
        try:
            await self._resync()
            while True:
                event = await self._subscription.next()
                if isinstance(event, Delta):
                    await self._on_delta(event)
                elif isinstance(event, Tick):
                    await self._on_tick(event)
                elif isinstance(event, Hint):
                    await self._on_hint(event)
                elif isinstance(event, HeadlineMessage):
                    await self._send_headline(event)
                else:
                    await self._resync()
        except OSError:
            return  # the client is gone; disconnect follows
        except Exception:
            # The client starts over with a new socket.
            logger.exception("socket of cluster %s failed", self.cluster)
            with contextlib.suppress(OSError, RuntimeError):
                await self.close(INTERNAL_ERROR)

    async def _resync(self) -> None:
        """Send hello and the snapshot; if there is no snapshot, send `stale`."""
        assert self._feed is not None, "connect subscribed"
        self._is_resync_pending, self._last_resync_at = False, time.monotonic()
        try:
            snapshot = await self._feed.snapshot()
        except StateUnavailableError:
            await self._send_stale(None)
            return
        self._epoch, self._seq, self._stale = snapshot.epoch, snapshot.seq, snapshot.stale
        self._headline = None
        self._layout_version, self._is_behind = snapshot.layout_version, False
        frame, frame_fields = snapshot.states, dict[str, Any]()
        if self.has_columns:
            frame = await self._feed.pack_columns(snapshot)
            frame_fields = {"columns": COLUMNS, "encoding": ENCODING}
        await self._send_message(
            {
                "type": "hello",
                "cluster": snapshot.cluster,
                "epoch": snapshot.epoch,
                "seq": snapshot.seq,
                "layout_version": snapshot.layout_version,
                "agents": len(snapshot.states),
                "age_ms": age_ms_of(snapshot.as_of, record_reader.current_time()),
                "interval_ms": round(snapshot.interval * 1000),
                "stale": snapshot.stale,
                "counts": {state.slug: count for state, count in snapshot.counts.items()},
                **frame_fields,
            }
        )
        await self.send(bytes_data=frame)
        await self._send_headline(await self._feed.headline(snapshot))
        self._last_beat_at = time.monotonic()

    async def _on_delta(self, delta: Delta) -> None:
        if delta.epoch == self._epoch and delta.seq <= self._seq:
            return  # the snapshot contains it already
        if delta.epoch != self._epoch or delta.seq != self._seq + 1 or self._stale:
            await self._resync()
            return
        self._seq, self._is_behind = delta.seq, False
        await self.send(text_data=delta.text)

    async def _send_headline(self, message: HeadlineMessage | None) -> None:
        if message is not None and message is not self._headline:
            self._headline = message
            await self.send(text_data=message.text)

    async def _on_hint(self, hint: Hint) -> None:
        if hint.layout_version:
            if hint.layout_version == self._layout_version:
                return
            self._layout_version = hint.layout_version
        await self.send(text_data=hint.text)

    async def _on_tick(self, tick: Tick) -> None:
        header = tick.header
        if header is None or header.stale:
            await self._send_stale(header)
        elif self._stale is not False or self._has_missed_events(header):
            await self._resync()
        elif header.layout_version != self._layout_version:
            await self._on_hint(create_layout_hint(header.layout_version))
        if time.monotonic() - self._last_beat_at >= BEAT_INTERVAL:
            await self._send_beat(header)

    def _has_missed_events(self, header: StreamHeader) -> bool:
        """Return whether events are lost: the header is ahead at two ticks. At one, it may be a race with the event."""
        is_ahead = header.epoch != self._epoch or header.seq > self._seq
        has_missed = is_ahead and self._is_behind
        self._is_behind = is_ahead
        return has_missed

    async def _send_stale(self, header: StreamHeader | None) -> None:
        """Send `stale`, once: the data is too old."""
        if self._stale:
            return
        self._stale = True
        counts = {} if header is None else {state.slug: count for state, count in header.counts.items()}
        await self._send_message(
            {"type": "stale", "epoch": self._epoch or "", "seq": self._seq, "counts": counts}
        )

    async def _send_beat(self, header: StreamHeader | None) -> None:
        self._last_beat_at = time.monotonic()
        age = None if header is None else age_ms_of(header.as_of, record_reader.current_time())
        stale = self._stale is not False
        await self._send_message(
            {"type": "beat", "epoch": self._epoch or "", "seq": self._seq, "age_ms": age, "stale": stale}
        )

    async def _send_message(self, message: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(message, separators=(",", ":")))


def _on_sign_out(**_: Any) -> None:
    """Request access checks soon, not now: Django sends this signal before it ends the session."""
    recheck_soon()


user_logged_out.connect(_on_sign_out, dispatch_uid="dashboards.sockets_after_sign_out")
