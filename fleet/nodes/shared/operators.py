"""Who may change a fleet: calls of operators, writes of the networking config and of the HTTP part of the auth API.

Each kind of write has a list of roles that may do it. A certificate of another role, or without one, may not: a
program that is added to the fleet, or a certificate for something else, changes nothing until a list names its role.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import grpc
import grpc.aio

from fleet.nodes.shared.addresses import is_loopback
from fleet.protocol.destination.instance_status import LONGEST_REASON, is_reason
from fleet.transport import peers

#: Roles of certificates that make operators' calls. A certificate stolen from an instance or an agent moves nothing,
#: and a gateway shows its own certificate for whoever calls through it.
OPERATORS = frozenset({"console"})


async def require_operator(
    context: grpc.aio.ServicerContext[Any, Any], action: str, host: str, *, allow_anonymous: bool = False
) -> None:
    """Refuse the call of one who is no operator of a node that listens on `host`: PERMISSION_DENIED."""
    refusal = refusal_of(peers.role_of(context), action, host, allow_anonymous=allow_anonymous)
    if refusal:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)


def refusal_of(
    role: str | None, action: str, host: str, roles: Collection[str] = OPERATORS, *, allow_anonymous: bool = False
) -> str:
    """Return why a caller may not; empty when it may. The role is None for a caller without a certificate.

    Without certificates everybody who reaches the port may, so the port must be on loopback, unless `anybody` is set.
    """
    if role in roles:
        return ""
    if role is None:
        if allow_anonymous or is_loopback(host):
            return ""
        return f"off loopback only a certificate of role {_join_roles(roles)} may {action}"
    role_text = f"of role {role!r}" if role else "without a role"
    return f"a certificate {role_text} may not {action}: it needs role {_join_roles(roles)}"


async def require_reason(context: grpc.aio.ServicerContext[Any, Any], reason: str) -> None:
    """Refuse a reason that cannot be shown or logged: INVALID_ARGUMENT."""
    if not is_reason(reason):
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"reason: has more than {LONGEST_REASON} characters, or such as cannot be printed",
        )


def _join_roles(roles: Collection[str]) -> str:
    return " or ".join(repr(role) for role in sorted(roles))
