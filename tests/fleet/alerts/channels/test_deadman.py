from __future__ import annotations

from fleet.alerts.channels.deadman import DeadmanSwitch
from tests.fakes.receivers import receiving


def test_heartbeat_goes_out_once_a_minute() -> None:
    """And again when the receiver is back."""
    with receiving(200, 500, 200) as receiver:
        deadman = DeadmanSwitch(receiver.url)
        assert [deadman.send_heartbeat(now) for now in (0.0, 30.0, 60.0, 120.0)] == [True, False, False, True]
    assert len(receiver.requests) == 3


def test_without_an_address_nothing_goes_out() -> None:
    """Nobody listens."""
    assert not DeadmanSwitch("").send_heartbeat(0.0)
