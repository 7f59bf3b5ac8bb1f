"""What calls of operators have in common: who may not make them, and what their reasons may be."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from fleet.nodes.connect_access import is_loopback
from fleet.protocol.standing import LONGEST_REASON, is_reason
from fleet.transport import peers

#: Roles of certificates that are the fleet's own: a stolen one of an agent must not move all the others.
_NO_OPERATORS = {"agent", "proxy", "auth"}


#: The role in a console's certificate.
_CONSOLE = "console"


async def demand(context: grpc.aio.ServicerContext[Any, Any], what: str, host: str) -> None:
    """Refuse the call of one who is no operator of a node that listens on `host`: PERMISSION_DENIED."""
    why_not = refused(peers.role_of(context), what, host)
    if why_not:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, why_not)


def refused(role: str, what: str, host: str) -> str:
    """Why somebody whose certificate has that role may not; empty when they may."""
    if role in _NO_OPERATORS:
        return f"a certificate of role {role!r} may not {what}"
    # Without mutual TLS anybody who reaches the port could ask.
    if role != _CONSOLE and not is_loopback(host):
        return f"off loopback only a certificate of role {_CONSOLE!r} may {what}"
    return ""


async def demand_reason(context: grpc.aio.ServicerContext[Any, Any], reason: str) -> None:
    """Refuse a reason that cannot be shown or logged: INVALID_ARGUMENT."""
    if not is_reason(reason):
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"reason: has more than {LONGEST_REASON} characters, or such as cannot be printed",
        )
