"""Faults that an event loop reports, without those of other loops."""

from __future__ import annotations

import asyncio
from typing import Any


def record_loop_faults() -> list[dict[str, Any]]:
    """Return a list to which the running loop appends the context of every uncaught fault."""
    faults: list[dict[str, Any]] = []

    def add(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not _belongs_to_a_closed_loop(context):
            faults.append(context)

    asyncio.get_running_loop().set_exception_handler(add)
    return faults


def _belongs_to_a_closed_loop(context: dict[str, Any]) -> bool:
    # gRPC has one poller for all loops of a process. In this loop it may meet a call of an earlier test, whose loop is
    # closed; the loop that runs cannot be the closed one.
    return (
        "PollerCompletionQueue" in str(context.get("message"))
        and str(context.get("exception")) == "Event loop is closed"
    )
