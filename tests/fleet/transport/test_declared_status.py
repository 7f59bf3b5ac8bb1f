from __future__ import annotations

from fleet.protocol.destination.instance_status import NOTHING, Said
from fleet.transport.declared_status import Standing
from tests.fakes.waiting import eventually


def test_drained_until_taken_back() -> None:
    """Listeners hear of changes only; a new reason takes the place of the old one, since when it drains stays."""
    now = 7.0
    standing = Standing(lambda: now)
    heard: list[Said] = []
    standing.listen(lambda: heard.append(standing.said))
    standing.drain("kernel")
    standing.drain("kernel")
    standing.drain("")
    assert heard == [Said(draining="kernel")]
    now = 9.0
    standing.drain("disk")
    assert standing.draining is not None
    assert (standing.draining.reason, standing.draining.at) == ("disk", 7.0)
    standing.undrain()
    standing.undrain()
    assert heard == [Said(draining="kernel"), Said(draining="disk"), NOTHING]


def test_no_reason_given() -> None:
    """There is something to show all the same."""
    standing = Standing()
    standing.drain("")
    standing.degrade("")
    assert standing.said == Said("an operator said so", "an operator said so")


async def test_degraded_expires() -> None:
    """It ends by itself, and what was said last decides when."""
    standing = Standing()
    heard: list[Said] = []
    standing.listen(lambda: heard.append(standing.said))
    standing.degrade("busy", 60.0)
    standing.degrade("very busy", 0.02)
    assert standing.said == Said(degraded="very busy")

    async def over() -> bool:
        return standing.said == NOTHING

    await eventually(over)
    assert heard == [Said(degraded="busy"), Said(degraded="very busy"), NOTHING]


async def test_degraded_restored_by_hand_is_not_restored_again() -> None:
    """The timer of an earlier word ends no later one."""
    standing = Standing()
    standing.degrade("busy", 0.01)
    standing.restore()
    standing.degrade("for good")
    assert standing.degraded is not None
    assert standing.degraded.until is None
    assert standing._expiry is None
