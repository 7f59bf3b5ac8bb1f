"""Telling instances whether they drain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fleet.changes.instance_dialer import order
from fleet.changes.standing.drains import Due
from fleet.transport.tls import TLSFiles


async def tell(wanted: Sequence[Due], tls: TLSFiles | None) -> dict[int, str]:
    """Tell them all at once; answers a sentence for each row, empty where it was taken."""
    answers = await asyncio.gather(*(_tell(one, tls) for one in wanted))
    return {one.row: answer for one, answer in zip(wanted, answers, strict=True)}


async def _tell(one: Due, tls: TLSFiles | None) -> str:
    return await order(
        one.address, one.kind, tls, lambda admin: admin.drain(one.reason) if one.drained else admin.undrain()
    )
