from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.teleport import event_stream
from fleet.monitoring.sources.teleport.event_stream import EventStream, parse_event
from fleet.monitoring.sources.teleport.resources import KINDS
from fleet.transport.poll_connections import Connections
from fleet.wire import authservice_pb2
from tests.fakes.teleport_auth import FakeTeleportAuth, make_node, put_event
from tests.fakes.waiting import eventually_sync

SECONDS = 30.0


@pytest.fixture
def stream(teleport_auth: FakeTeleportAuth) -> Iterator[EventStream]:
    """A stream of an auth that accepts it unless a test refuses before."""
    event_stream_at_auth = EventStream(
        Connections().open_stream_channel(teleport_auth.address, "auth"), KINDS
    )
    yield event_stream_at_auth
    event_stream_at_auth.close()


def take_until(stream: EventStream, count: int) -> list[bytes]:
    events: list[bytes] = []

    def is_complete() -> bool:
        events.extend(stream.take_events())
        return len(events) >= count

    eventually_sync(is_complete)
    return events


def test_events_are_collected_in_their_order(teleport_auth: FakeTeleportAuth, stream: EventStream) -> None:
    """After INIT with the kinds that are watched."""
    first_event = stream.await_first_event(SECONDS)
    assert [kind.kind for kind in first_event.watch_status.spec.kinds] == list(KINDS)
    sent_events = [put_event(make_node(f"host-{number}")) for number in range(100)]
    teleport_auth.send(*sent_events)
    assert [parse_event(event) for event in take_until(stream, 100)] == sent_events
    stream.check(SECONDS)


def test_ended_stream_is_an_error(teleport_auth: FakeTeleportAuth, stream: EventStream) -> None:
    stream.await_first_event(SECONDS)
    teleport_auth.end_watches()
    with pytest.raises(SourceError, match="watcher is closed"):
        eventually_sync(lambda: stream.take_events() is None)


def test_auth_that_does_not_respond_is_an_error(teleport_auth: FakeTeleportAuth, stream: EventStream) -> None:
    """Its stream looks like one without events."""
    stream.await_first_event(SECONDS)
    teleport_auth.freeze_event.set()
    with pytest.raises(SourceError, match="deadline exceeded"):
        stream.check(0.2)
    assert stream.take_events() == []


def test_auth_that_is_not_ready_is_an_error(teleport_auth: FakeTeleportAuth, stream: EventStream) -> None:
    """Without its backend it keeps the stream open. An auth that does not know its health responds."""
    teleport_auth.serving = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    stream.check(SECONDS)
    teleport_auth.serving = health_pb2.HealthCheckResponse.NOT_SERVING
    with pytest.raises(SourceError, match="not ready"):
        stream.check(SECONDS)


def test_too_many_waiting_events_are_an_error(
    teleport_auth: FakeTeleportAuth, stream: EventStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded when nobody takes them."""
    monkeypatch.setattr(event_stream, "_MAX_WAITING_BYTES", 1000)
    stream.await_first_event(SECONDS)
    teleport_auth.send(*(put_event(make_node(f"host-{number}")) for number in range(100)))
    eventually_sync(lambda: teleport_auth.watch_count == 0)
    with pytest.raises(SourceError, match="too many"):
        eventually_sync(lambda: stream.take_events() is None)


def test_refused_and_missing_first_event(teleport_auth: FakeTeleportAuth) -> None:
    teleport_auth.refusals = {"WatchEvents": grpc.StatusCode.PERMISSION_DENIED}
    stream = EventStream(Connections().open_stream_channel(teleport_auth.address, "auth"), KINDS)
    with pytest.raises(SourceError, match="permission denied"):
        stream.await_first_event(SECONDS)
    stream.close()
    with pytest.raises(SourceError, match="cannot be parsed"):
        parse_event(b"\xff")
    assert parse_event(b"").type == authservice_pb2.INIT


def test_first_event_is_awaited_with_a_deadline(teleport_auth: FakeTeleportAuth) -> None:
    teleport_auth.stop()
    stream = EventStream(Connections().open_stream_channel("127.0.0.1:1", "auth"), KINDS)
    with pytest.raises(SourceError):
        stream.await_first_event(0.0)
    stream.close()
