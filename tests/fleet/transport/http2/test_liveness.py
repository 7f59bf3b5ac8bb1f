"""Pings of a peer of whom somebody waits for an answer. test_connection.py has them on a connection."""

from __future__ import annotations

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
            0.01, 0.02, wanted=lambda: self.wanted, send=self._send, dead=self.died.append
        )

    def _send(self, data: bytes) -> None:
        self.pings += 1
        if self.answers:
            self.liveness.heard()
            self.liveness.answered()


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
    peer.liveness._look()
    assert (peer.pings, peer.died) == (0, [])
