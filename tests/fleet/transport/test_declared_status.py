from __future__ import annotations

from fleet.protocol.destination.instance_status import EMPTY_STATUS, InstanceStatus
from fleet.transport.declared_status import DeclaredStatus
from tests.fakes.waiting import eventually


def test_drained_until_taken_back() -> None:
    """Listeners hear of changes only; a new reason takes the place of the old one, since when it drains stays."""
    now = 7.0
    standing = DeclaredStatus(lambda: now)
    heard: list[InstanceStatus] = []
    standing.listen(lambda: heard.append(standing.status))
    standing.drain("kernel")
    standing.drain("kernel")
    standing.drain("")
    assert heard == [InstanceStatus(draining_reason="kernel")]
    now = 9.0
    standing.drain("disk")
    assert standing.drain_declaration is not None
    assert (standing.drain_declaration.reason, standing.drain_declaration.at) == ("disk", 7.0)
    standing.undrain()
    standing.undrain()
    assert heard == [
        InstanceStatus(draining_reason="kernel"),
        InstanceStatus(draining_reason="disk"),
        EMPTY_STATUS,
    ]


def test_no_reason_given() -> None:
    """There is something to show all the same."""
    standing = DeclaredStatus()
    standing.drain("")
    standing.degrade("")
    assert standing.status == InstanceStatus("no reason given", "no reason given")


async def test_degraded_expires() -> None:
    """It ends by itself, and what was said last decides when."""
    standing = DeclaredStatus()
    heard: list[InstanceStatus] = []
    standing.listen(lambda: heard.append(standing.status))
    standing.degrade("busy", 60.0)
    standing.degrade("very busy", 0.02)
    assert standing.status == InstanceStatus(degraded_reason="very busy")

    async def over() -> bool:
        return standing.status == EMPTY_STATUS

    await eventually(over)
    assert heard == [
        InstanceStatus(degraded_reason="busy"),
        InstanceStatus(degraded_reason="very busy"),
        EMPTY_STATUS,
    ]


async def test_degraded_restored_by_hand_is_not_restored_again() -> None:
    """The timer of an earlier word ends no later one."""
    standing = DeclaredStatus()
    standing.degrade("busy", 0.01)
    standing.restore()
    standing.degrade("for good")
    assert standing.degraded_declaration is not None
    assert standing.degraded_declaration.until is None
    assert standing._expiry is None
