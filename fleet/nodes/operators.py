"""What calls of operators have in common: who may not make them, and what their reasons may be."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from fleet.protocol.standing import LONGEST_REASON, is_reason
from fleet.transport import peers

#: Roles of certificates that are the fleet's own: a stolen one of an agent must not move all the others.
_NO_OPERATORS = {"agent", "proxy", "auth"}


async def demand(context: grpc.aio.ServicerContext[Any, Any], what: str) -> None:
    """Refuse the call of one who is no operator: PERMISSION_DENIED."""
    role = peers.role_of(context)
    if role in _NO_OPERATORS:
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED, f"a certificate of role {role!r} may not {what}"
        )


async def demand_reason(context: grpc.aio.ServicerContext[Any, Any], reason: str) -> None:
    """Refuse a reason that cannot be shown or logged: INVALID_ARGUMENT."""
    if not is_reason(reason):
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"reason: has more than {LONGEST_REASON} characters, or such as cannot be printed",
        )
