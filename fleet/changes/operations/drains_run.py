"""Sends requests to drain or undrain to instances."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fleet.changes.instance_dialer import call_instance_admin
from fleet.changes.operations.drains import DueDrain
from fleet.transport.tls import TLSFiles


async def send_drain_requests(due_drains: Sequence[DueDrain], tls: TLSFiles | None) -> dict[int, str]:
    """Send all requests at the same time; return the error for each row, empty where the instance accepted."""
    errors = await asyncio.gather(*(_send_drain_request(drain, tls) for drain in due_drains))
    return {drain.row_id: error for drain, error in zip(due_drains, errors, strict=True)}


async def _send_drain_request(drain: DueDrain, tls: TLSFiles | None) -> str:
    return await call_instance_admin(
        drain.address,
        drain.kind,
        tls,
        lambda admin: admin.drain(drain.reason) if drain.is_drained else admin.undrain(),
    )
