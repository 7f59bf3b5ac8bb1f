"""Telling instances whether they drain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fleet.changes.standing.drains import Due
from fleet.transport.admin import AdminError, InstanceAdmin
from fleet.transport.channels import TLSError, TLSFiles
from fleet.transport.connections import Connections

#: An instance answers such a call at once, seconds.
_WITHIN = 2.0


async def tell(wanted: Sequence[Due], tls: TLSFiles | None) -> dict[int, str]:
    """Tell them all at once; answers a sentence for each row, empty where it was taken."""
    answers = await asyncio.gather(*(_tell(one, tls) for one in wanted))
    return {one.row: answer for one, answer in zip(wanted, answers, strict=True)}


async def _tell(one: Due, tls: TLSFiles | None) -> str:
    connections = Connections(tls)
    try:
        admin = InstanceAdmin(connections.channel(one.address, one.kind), within=_WITHIN)
        await (admin.drain(one.reason) if one.drained else admin.undrain())
    except (AdminError, TLSError, ValueError) as error:
        return str(error)
    finally:
        await connections.close()
    return ""
