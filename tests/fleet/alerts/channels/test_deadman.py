from __future__ import annotations

from fleet.alerts.channels.deadman import DeadmanSwitch
from tests.fakes.receivers import run_receiver


def test_heartbeat_is_sent_once_a_minute() -> None:
    """A failed heartbeat is followed by another one a minute later."""
    with run_receiver(200, 500, 200) as receiver:
        deadman = DeadmanSwitch(receiver.url)
        assert [deadman.send_heartbeat(now) for now in (0.0, 30.0, 60.0, 120.0)] == [True, False, False, True]
    assert len(receiver.requests) == 3


def test_no_heartbeat_is_sent_without_an_address() -> None:
    assert not DeadmanSwitch("").send_heartbeat(0.0)
