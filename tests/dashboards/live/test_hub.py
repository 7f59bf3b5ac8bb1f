from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest
from channels.layers import get_channel_layer
from pytest_django import Settings

from dashboards.live import hub
from dashboards.live.hub import (
    Delta,
    Feed,
    FeedEvent,
    HeadlineMessage,
    Hint,
    ResyncRequest,
    SocketQueue,
    Tick,
    mark_stale_if_old,
)
from dashboards.shared import headlines, record_reader
from dashboards.shared.presenters import age_ms_of
from fleet.alerts.headlines.activity import NO_ACTIVITY
from fleet.monitoring.publish import group_of
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader
from tests.fakes.record import conclude
from tests.fakes.waiting import eventually

NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def no_incidents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headlines link no incidents, so that they need no database."""
    monkeypatch.setattr(headlines, "read_open_incidents", lambda _cluster: ())
    monkeypatch.setattr(hub, "read_activity", lambda _cluster, _now: NO_ACTIVITY)


async def _next(subscription: SocketQueue, kind: type[FeedEvent]) -> FeedEvent:
    async with asyncio.timeout(60):
        while True:
            event = await subscription.next()
            if isinstance(event, kind):
                return event


def test_aged_header_of_a_record_out_of_reach() -> None:
    """Fresh stays fresh for three rounds or 10 s; then all but the retired are unknown; what was stale stays."""
    head = FakeReader(states=[State.HEALTHY, State.RETIRED], as_of=NOW).stream_header("default", NOW)
    assert mark_stale_if_old(head, NOW + 10) is head
    old = mark_stale_if_old(head, NOW + 10.5)
    assert old.stale
    assert (old.counts[State.UNKNOWN], old.counts[State.RETIRED], old.counts[State.HEALTHY]) == (1, 1, 0)
    assert not mark_stale_if_old(replace(head, interval=60.0), NOW + 100).stale
    assert mark_stale_if_old(old, NOW) is old


def test_delta_text_carries_an_age_and_no_clock() -> None:
    """The browser's clock is never compared with the server's."""
    fake = FakeReader(as_of=NOW)
    message = json.loads(hub.format_delta(fake.change(2, State.STRANDED), NOW + 1.5))
    assert message["age_ms"] == 1500
    assert message["changes"] == [[2, int(State.STRANDED)]]
    assert set(message) == {"type", "epoch", "seq", "age_ms", "changes", "counts"}


def test_age_of_a_future_moment_is_negative() -> None:
    """The browser names clocks that differ; an age of nothing would hide that polling stopped."""
    assert age_ms_of(NOW + 180, NOW) == -180_000
    assert age_ms_of(None, NOW) is None


async def test_slow_socket_starts_over() -> None:
    """What waits for a socket is bounded; past that it is one request to start over, and then what came later."""
    queue = SocketQueue()
    for number in range(65):
        queue.offer(Delta("e", number, ""))
    queue.offer(Delta("e", 65, ""))
    assert isinstance(await queue.next(), ResyncRequest)
    assert await queue.next() == Delta("e", 65, "")


async def test_feed_passes_events_on_and_survives_nonsense(record: Writer) -> None:
    """An invalid event is logged and skipped; the next event is delivered."""
    feed = Feed("default", 0.1)
    subscription = await feed.subscribe()
    layer = get_channel_layer()
    assert layer is not None
    for event in ({"type": "delta"}, {"no": "type"}, {"type": "from-the-future"}, {"type": "instances"}):
        await layer.group_send(group_of("default"), {"type": "fleet.event", "event": event})
    assert await _next(subscription, Hint) == Hint('{"type": "instances"}')
    tick = await _next(subscription, Tick)
    assert isinstance(tick, Tick)
    assert tick.header is not None
    assert tick.header.agent_count == 4
    await feed.stop()
    await layer.flush()


async def test_snapshot_is_shared_until_something_newer_is_known(record: Writer) -> None:
    """Many sockets that start over at once cost one read; an event makes the next one read again."""
    feed = Feed("default", 0.1)
    subscription = await feed.subscribe()
    first = await feed.snapshot()
    assert await feed.snapshot() is first
    states = [State.OFFLINE, State.HEALTHY, State.STRANDED, State.AT_RISK]
    assert await asyncio.to_thread(conclude, record, states, as_of=time.time())
    layer = get_channel_layer()
    assert layer is not None
    event = FakeReader(epoch=first.epoch, seq=first.seq, as_of=time.time()).change(0, State.OFFLINE)
    await layer.group_send(group_of("default"), {"type": "fleet.event", "event": event})
    await _next(subscription, Delta)
    assert (await feed.snapshot()).states == bytes(states)
    await feed.stop()
    await layer.flush()


async def test_feed_joins_when_redis_comes_late(
    record: Writer, live_settings: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis down at first: sockets are served without events, and the group is joined as soon as it can be."""
    real = get_channel_layer()
    assert real is not None

    class Late:
        """Refuses twice."""

        refusals = 2

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

        async def new_channel(self) -> str:
            if self.refusals:
                self.refusals -= 1
                raise hub.StateUnavailableError("Redis does not answer")
            return str(await real.new_channel())

    late = Late()
    monkeypatch.setattr(hub, "get_channel_layer", lambda: late)
    monkeypatch.setattr(hub, "_REJOIN_INTERVAL", 0.05)
    feed = Feed("default", 0.1)
    subscription = await feed.subscribe(join_timeout=0.01)

    async def hears_the_feed() -> bool:
        await real.group_send(group_of("default"), {"type": "fleet.event", "event": {"type": "instances"}})
        try:
            async with asyncio.timeout(0.2):
                return isinstance(await _next(subscription, Hint), Hint)
        except TimeoutError:
            return False

    await eventually(hears_the_feed)
    await feed.stop()
    await real.flush()


async def test_cancelled_subscription_ends_its_feed(live_settings: Settings, fake_reader: FakeReader) -> None:
    """Whoever is cancelled while the group is not joined yet never gets the subscription: nothing of it stays."""
    live_settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": ["redis://127.0.0.1:1/0"]},
        }
    }
    subscription = asyncio.create_task(hub.current_hub().subscribe("default"))
    await eventually(lambda: hub.count_sockets() == {"default": 1})
    subscription.cancel()
    with pytest.raises(asyncio.CancelledError):
        await subscription
    assert hub.current_hub().feeds == {}


async def test_headline_is_sent_when_it_changes(record: Writer) -> None:
    """With the counts of its round; a round that changes nothing sends none."""
    feed = Feed("default", 0.05)
    subscription = await feed.subscribe()
    first = await _next(subscription, HeadlineMessage)
    assert isinstance(first, HeadlineMessage)
    message = json.loads(first.text)
    assert (message["type"], message["counts"]["stranded"], message["tab_title"]) == ("headline", 1, "✖1")
    assert message["text"].startswith("1 agent stranded since ")
    assert await feed.headline(await feed.snapshot()) is not None
    states = [State.HEALTHY, State.HEALTHY, State.STRANDED, State.AT_RISK]
    assert await asyncio.to_thread(conclude, record, states, as_of=time.time())
    states[0] = State.STRANDED
    assert await asyncio.to_thread(conclude, record, states, as_of=time.time())
    second = await _next(subscription, HeadlineMessage)
    assert isinstance(second, HeadlineMessage)
    assert json.loads(second.text)["counts"]["stranded"] == 2, "nothing was sent about the round between"
    await feed.stop()


async def test_headline_of_a_record_out_of_reach_is_stale(
    record: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last header ages; before that the last headline stays."""
    feed = Feed("default", 0.05)
    subscription = await feed.subscribe()
    await _next(subscription, HeadlineMessage)
    fake, now = FakeReader(down=True), time.time()
    monkeypatch.setattr(record_reader, "reader", lambda: fake)
    monkeypatch.setattr(record_reader, "current_time", lambda: now + 3600)
    stale = await _next(subscription, HeadlineMessage)
    assert isinstance(stale, HeadlineMessage)
    message = json.loads(stale.text)
    assert (message["state"], message["counts"]["unknown"]) == ("unknown", 4)
    assert message["text"].startswith("Agent states are unknown since ")
    await feed.stop()
