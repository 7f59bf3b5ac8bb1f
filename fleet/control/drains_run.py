"""Telling instances whether they drain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fleet.control.drains import Due
from fleet.transport import channels
from fleet.transport.admin import AdminError, InstanceAdmin
from fleet.transport.channels import TLSError, TLSFiles

#: An instance answers such a call at once, seconds.
_WITHIN = 2.0


async def tell(wanted: Sequence[Due], tls: TLSFiles | None) -> dict[int, str]:
    """Tell them all at once; answers a sentence for each row, empty where it was taken."""
    answers = await asyncio.gather(*(_tell(one, tls) for one in wanted))
    return {one.row: answer for one, answer in zip(wanted, answers, strict=True)}


async def _tell(one: Due, tls: TLSFiles | None) -> str:
    host, _, port = one.address.rpartition(":")
    try:
        target = channels.target_of([(host.strip("[]"), int(port))])
        own = None if tls is None else tls.towards(one.kind)
        async with channels.open_channel(target, own) as channel:
            admin = InstanceAdmin(channel, within=_WITHIN)
            await (admin.drain(one.reason) if one.drained else admin.undrain())
    except (AdminError, TLSError, ValueError) as error:
        return str(error)
    return ""
