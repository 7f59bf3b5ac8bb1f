"""Who may write resources by the HTTP part of the auth API: each call has its roles, and an instance writes its own.

RFD 226's inventory says who uses which call. Without certificates of clients nobody proves anything: docs/auth-http.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleet.nodes import flags, operators
from fleet.transport.backend import Kind
from fleet.transport.channels import SHARED_NAMES
from fleet.transport.peers import Caller

#: Roles of certificates by the call that they may make. A call that is not here, and is no read, nobody may make.
WRITERS: Mapping[str, frozenset[str]] = {
    "UpsertProxy": frozenset({"proxy"}),
    "DeleteProxy": frozenset({"proxy", *operators.OPERATORS}),
    "DeleteAllProxies": operators.OPERATORS,
    "UpsertAuthServer": frozenset({"auth"}),
    **dict.fromkeys(
        ("UpsertTunnelConnection", "DeleteTunnelConnection", "DeleteTunnelConnections"),
        frozenset({"auth", "proxy", *operators.OPERATORS}),
    ),
}


def refused(call: str, caller: Caller | None, host: str, *, anybody: bool) -> str:
    """Return why a caller may not make a call that writes; empty when it may.

    `host` is where the auth listens; `anybody`: callers without a certificate may write off loopback too.
    """
    role = None if caller is None else caller.role
    return operators.refused(role, f"call {call}", host, WRITERS.get(call, frozenset()), anybody=anybody)


def unproven(caller: Caller | None, kind: Kind, instance_id: str, cluster: str) -> str:
    """Return why a caller may not write that instance's resource; empty when it may.

    An instance is proven by its id, or by the name that its id is made from. Operators write any.
    """
    if caller is None or caller.role in operators.OPERATORS:
        return ""
    names = [name for name in caller.names if name not in SHARED_NAMES]
    if instance_id in names or any(flags.host_id(cluster, kind, name) == instance_id for name in names):
        return ""
    return f"the certificate proves {', '.join(names) or 'no name'}; not {kind} {instance_id}"
