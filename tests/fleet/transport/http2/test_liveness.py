"""Pings to a peer with pending calls. test_connection.py tests them on a connection."""

from __future__ import annotations

import pytest

from fleet.transport.http2.liveness import Liveness
from tests.fakes.waiting import eventually


class Peer:
    """Peer that counts pings, and may answer them."""

    def __init__(self, *, has_calls: bool = True, is_answering: bool = False) -> None:
        self.has_calls = has_calls
        self.is_answering = is_answering
        self.pings = 0
        self.death_reasons: list[str] = []
        self.liveness = Liveness(
            0.01,
            0.02,
            0.0,
            has_calls=lambda: self.has_calls,
            send=self._send,
            on_dead_peer=self.death_reasons.append,
        )

    def _send(self, data: bytes) -> None:
        self.pings += 1
        if self.is_answering:
            self.liveness.record_activity()
            self.liveness.record_ping_ack()


async def test_silence_gets_one_ping_and_then_ends() -> None:
    """Without an answer the peer is dead; afterwards nothing else happens."""
    peer = Peer()
    peer.liveness.watch()
    peer.liveness.watch()
    await eventually(lambda: bool(peer.death_reasons))
    assert peer.death_reasons == ["no answer to a ping within 0.02 s"]
    assert peer.pings == 1


async def test_peer_that_answers_stays_alive() -> None:
    peer = Peer(is_answering=True)
    peer.liveness.watch()
    await eventually(lambda: peer.pings >= 3)
    assert not peer.death_reasons
    peer.liveness.stop()


async def test_peer_without_calls_gets_no_ping() -> None:
    """It may be silent for ever."""
    peer = Peer(has_calls=False)
    peer.liveness._check()
    assert (peer.pings, peer.death_reasons) == (0, [])


class Timeline:
    """A loop with timers whose clock the test sets, and a server that counts pings as gRPC servers do."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[tuple[float, object]] = []
        self.pings: list[float] = []
        self.strikes = 0
        self.is_answering = True
        self.death_reasons: list[str] = []
        self._data_sent = False
        self._last_ping_at = float("-inf")
        self.liveness = Liveness(
            10.0, 5.0, 310.0, has_calls=lambda: True, send=self._ping, on_dead_peer=self.death_reasons.append
        )
        self.liveness._loop = self  # type: ignore[assignment]  # its clock and timers are all that is used
        self.liveness.record_activity()
        self.liveness.watch()

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: object) -> object:
        self._timers.append((self.now + seconds, callback))
        return self

    def send_data(self) -> None:
        """Let the server send DATA or HEADERS."""
        self._data_sent = True
        self.liveness.record_activity()
        self.liveness.has_data_since_ping = True

    def _ping(self, data: bytes) -> None:
        self.pings.append(self.now)
        if self._data_sent:
            self._data_sent, self.strikes = False, 0
        elif self.now < self._last_ping_at + 300:
            self.strikes += 1
        self._last_ping_at = self.now
        if self.is_answering:
            self.liveness.record_activity()
            self.liveness.record_ping_ack()

    def advance(self, seconds: float) -> None:
        """Advance the clock, and run the due timers on the way."""
        end = self.now + seconds
        while due_timers := sorted(
            (timer for timer in self._timers if timer[0] <= end), key=lambda timer: timer[0]
        ):
            self._timers.remove(due_timers[0])
            self.now = due_timers[0][0]
            due_timers[0][1]()  # type: ignore[operator]
        self.now = end


@pytest.fixture
async def timeline() -> Timeline:
    return Timeline()


async def test_idle_stream_is_pinged_as_grpc_servers_permit(timeline: Timeline) -> None:
    """No ping counts as a strike during a day of silence."""
    timeline.advance(86_400)

    assert timeline.strikes == 0
    assert len(timeline.pings) == pytest.approx(86_400 / 310, abs=2)
    assert not timeline.death_reasons


@pytest.mark.parametrize("interval", [1.0, 9.0, 11.0, 40.0, 299.0, 301.0])
async def test_each_data_frame_permits_a_ping(timeline: Timeline, interval: float) -> None:
    """No ping is a strike at any data rate; one ping tests each pause after data."""
    for _ in range(50):
        timeline.send_data()
        timeline.advance(interval)

    assert timeline.strikes == 0
    assert not timeline.death_reasons
    if interval > 10:
        assert len(timeline.pings) >= 50


async def test_freeze_after_data_is_detected_soon(timeline: Timeline) -> None:
    """Within the silence and the answer time, however long the stream was idle before."""
    timeline.advance(3600)
    timeline.send_data()
    timeline.is_answering = False
    timeline.advance(10 + 10 + 5)

    assert timeline.death_reasons == ["no answer to a ping within 5 s"]


async def test_freeze_of_an_idle_stream_is_detected(timeline: Timeline) -> None:
    """The next ping that servers permit detects it."""
    timeline.advance(60)
    timeline.is_answering = False
    timeline.advance(320)

    assert timeline.death_reasons == ["no answer to a ping within 5 s"]
