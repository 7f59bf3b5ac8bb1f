from __future__ import annotations

from fleet.protocol.destination.instance_status import EMPTY_STATUS, InstanceStatus
from fleet.transport.declared_status import DeclaredStatus
from tests.fakes.waiting import eventually


def test_drain_lasts_until_undrain() -> None:
    """Listeners get changes only; a new reason replaces the old one, and the time stays."""
    now = 7.0
    declared_status = DeclaredStatus(lambda: now)
    statuses: list[InstanceStatus] = []
    declared_status.add_listener(lambda: statuses.append(declared_status.status))
    declared_status.drain("kernel")
    declared_status.drain("kernel")
    declared_status.drain("")
    assert statuses == [InstanceStatus(draining_reason="kernel")]
    now = 9.0
    declared_status.drain("disk")
    assert declared_status.draining_declaration is not None
    assert (
        declared_status.draining_declaration.reason,
        declared_status.draining_declaration.declared_at,
    ) == ("disk", 7.0)
    declared_status.undrain()
    declared_status.undrain()
    assert statuses == [
        InstanceStatus(draining_reason="kernel"),
        InstanceStatus(draining_reason="disk"),
        EMPTY_STATUS,
    ]


def test_empty_reason_gets_a_default() -> None:
    declared_status = DeclaredStatus()
    declared_status.drain("")
    declared_status.degrade("")
    assert declared_status.status == InstanceStatus("no reason given", "no reason given")


async def test_degraded_expires() -> None:
    """The last declaration decides when."""
    declared_status = DeclaredStatus()
    statuses: list[InstanceStatus] = []
    declared_status.add_listener(lambda: statuses.append(declared_status.status))
    declared_status.degrade("busy", 60.0)
    declared_status.degrade("very busy", 0.02)
    assert declared_status.status == InstanceStatus(degraded_reason="very busy")

    async def is_over() -> bool:
        return declared_status.status == EMPTY_STATUS

    await eventually(is_over)
    assert statuses == [
        InstanceStatus(degraded_reason="busy"),
        InstanceStatus(degraded_reason="very busy"),
        EMPTY_STATUS,
    ]


async def test_restore_cancels_the_expiry() -> None:
    """The timer of an earlier declaration does not end a later one."""
    declared_status = DeclaredStatus()
    declared_status.degrade("busy", 0.01)
    declared_status.restore()
    declared_status.degrade("for good")
    assert declared_status.degraded_declaration is not None
    assert declared_status.degraded_declaration.expires_at is None
    assert declared_status._expiry_timer is None
