"""Pings of a peer of whom somebody waits for an answer. test_connection.py has them on a connection."""

from __future__ import annotations

import pytest

from fleet.transport.http2.liveness import Liveness
from tests.fakes.waiting import eventually


class Peer:
    """Writes down what it is sent."""

    def __init__(self, *, wanted: bool = True, answers: bool = False) -> None:
        self.wanted = wanted
        self.answers = answers
        self.pings = 0
        self.died: list[str] = []
        self.liveness = Liveness(
            0.01, 0.02, 0.0, has_calls=lambda: self.wanted, send=self._send, on_dead=self.died.append
        )

    def _send(self, data: bytes) -> None:
        self.pings += 1
        if self.answers:
            self.liveness.record_activity()
            self.liveness.record_ping_ack()


async def test_silence_is_asked_and_then_the_end() -> None:
    """One ping, and the reason when nothing comes; after that nothing more is done."""
    peer = Peer()
    peer.liveness.watch()
    peer.liveness.watch()
    await eventually(lambda: bool(peer.died))
    assert peer.died == ["no answer to a ping within 0.02 s"]
    assert peer.pings == 1


async def test_peer_that_answers() -> None:
    """It is asked again and again, and stays."""
    peer = Peer(answers=True)
    peer.liveness.watch()
    await eventually(lambda: peer.pings >= 3)
    assert not peer.died
    peer.liveness.stop()


async def test_nobody_waits_for_it() -> None:
    """Without calls it is not asked, and may be silent for ever."""
    peer = Peer(wanted=False)
    peer.liveness._check()
    assert (peer.pings, peer.died) == (0, [])


class Timeline:
    """A loop of timers whose clock the test turns, and a server that counts pings as gRPC servers do."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[tuple[float, object]] = []
        self.pings: list[float] = []
        self.strikes = 0
        self.answers = True
        self.died: list[str] = []
        self._data_sent = False
        self._last_ping_at = float("-inf")
        self.liveness = Liveness(
            10.0, 5.0, 310.0, has_calls=lambda: True, send=self._ping, on_dead=self.died.append
        )
        self.liveness._loop = self  # type: ignore[assignment]  # its clock and timers are all that is used
        self.liveness.record_activity()
        self.liveness.watch()

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, act: object) -> object:
        self._timers.append((self.now + seconds, act))
        return self

    def data(self) -> None:
        """The server sends DATA or HEADERS."""
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
        if self.answers:
            self.liveness.record_activity()
            self.liveness.record_ping_ack()

    def pass_time(self, seconds: float) -> None:
        """Turn the clock, and ring what is due on the way."""
        end = self.now + seconds
        while due := sorted((one for one in self._timers if one[0] <= end), key=lambda one: one[0]):
            self._timers.remove(due[0])
            self.now = due[0][0]
            due[0][1]()  # type: ignore[operator]
        self.now = end


@pytest.fixture
async def timeline() -> Timeline:
    return Timeline()


async def test_idle_stream_is_pinged_as_grpc_servers_permit(timeline: Timeline) -> None:
    """In a day of silence no ping is a strike."""
    timeline.pass_time(86_400)

    assert timeline.strikes == 0
    assert len(timeline.pings) == pytest.approx(86_400 / 310, abs=2)
    assert not timeline.died


@pytest.mark.parametrize("every", [1.0, 9.0, 11.0, 40.0, 299.0, 301.0])
async def test_data_permits_a_ping_each(timeline: Timeline, every: float) -> None:
    """However often data comes, no ping is a strike; a pause after it is tested by one ping."""
    for _ in range(50):
        timeline.data()
        timeline.pass_time(every)

    assert timeline.strikes == 0
    assert not timeline.died
    if every > 10:
        assert len(timeline.pings) >= 50


async def test_freeze_after_data_is_noticed_soon(timeline: Timeline) -> None:
    """Within the silence and the time for an answer, however long the stream was idle before."""
    timeline.pass_time(3600)
    timeline.data()
    timeline.answers = False
    timeline.pass_time(10 + 10 + 5)

    assert timeline.died == ["no answer to a ping within 5 s"]


async def test_freeze_of_an_idle_stream_is_noticed_at_last(timeline: Timeline) -> None:
    """By the next ping that servers permit."""
    timeline.pass_time(60)
    timeline.answers = False
    timeline.pass_time(320)

    assert timeline.died == ["no answer to a ping within 5 s"]
