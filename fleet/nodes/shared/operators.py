"""Permissions by the role of the client certificate: operators' RPCs, the networking config, the HTTP auth API.

Each kind of write has a list of roles. A certificate with another role, or without one, is refused: a new program or
certificate can change nothing until a list names its role.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import grpc
import grpc.aio

from fleet.nodes.shared.addresses import is_loopback
from fleet.protocol.destination.instance_status import LONGEST_REASON, is_valid_reason
from fleet.transport import peers

#: Roles that may make operators' RPCs. A certificate stolen from an instance or agent cannot change anything, and a
#: gateway shows its own certificate for every caller.
OPERATOR_ROLES = frozenset({"console"})


async def require_operator(
    context: grpc.aio.ServicerContext[Any, Any], action: str, host: str, *, allow_anonymous: bool = False
) -> None:
    """End the RPC with PERMISSION_DENIED unless the caller is an operator. `host` is where the instance listens."""
    refusal = refusal_of(peers.role_of(context), action, host, allow_anonymous=allow_anonymous)
    if refusal:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)


def refusal_of(
    role: str | None,
    action: str,
    host: str,
    roles: Collection[str] = OPERATOR_ROLES,
    *,
    allow_anonymous: bool = False,
) -> str:
    """Return why a caller may not do `action`; empty if it may. `role` is None for a caller without a certificate.

    Without certificates everybody who reaches the port may, so the port must be on loopback, unless
    `allow_anonymous`
    is set.
    """
    if role in roles:
        return ""
    if role is None:
        if allow_anonymous or is_loopback(host):
            return ""
        return (
            "not allowed: on an address other than loopback, a client needs a certificate with the role "
            f"{_join_roles(roles)} to {action}"
        )
    role_text = f"the role {role!r}" if role else "no role"
    return (
        f"not allowed: a client needs a certificate with the role {_join_roles(roles)} to {action}; "
        f"this one has {role_text}"
    )


async def require_reason(context: grpc.aio.ServicerContext[Any, Any], reason: str) -> None:
    """End the RPC with INVALID_ARGUMENT if the reason cannot be shown or logged."""
    if not is_valid_reason(reason):
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"reason: longer than {LONGEST_REASON} characters, or with characters that cannot be printed",
        )


def _join_roles(roles: Collection[str]) -> str:
    return " or ".join(repr(role) for role in sorted(roles))
