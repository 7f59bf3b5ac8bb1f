"""Who may write resources by the HTTP part of the auth API: each call has its roles, and an instance writes its own.

RFD 226's inventory says who uses which call. Without certificates of clients nobody proves anything: docs/auth-http.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleet.nodes.shared import flags, operators
from fleet.protocol import text_limits
from fleet.transport.backend import Kind
from fleet.transport.peers import Caller
from fleet.transport.tls import SHARED_NAMES
from fleet.wire import types_pb2

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


def refusal_of(call: str, caller: Caller | None, host: str, *, allow_anonymous: bool) -> str:
    """Return why a caller may not make a call that writes; empty when it may.

    `host` is where the auth listens; `anybody`: callers without a certificate may write off loopback too.
    """
    role = None if caller is None else caller.role
    return operators.refusal_of(role, f"call {call}", host, WRITERS.get(call, frozenset()), allow_anonymous=allow_anonymous)


def identity_refusal_of(caller: Caller | None, kind: Kind, instance_id: str, cluster: str, name: str = "") -> str:
    """Return why a caller may not write that instance's resource; empty when it may.

    An instance is proven by its id, or by the name that its id is made from. The `name` that people read and choose it
    by is proven as well: else a proxy would be listed as another one. Operators write any.
    """
    if caller is None or caller.role in operators.OPERATORS:
        return ""
    names = [proven for proven in caller.names if proven not in SHARED_NAMES]
    if instance_id not in names and all(flags.host_id(cluster, kind, proven_name) != instance_id for proven_name in names):
        return f"the certificate proves {', '.join(names) or 'no name'}; not {kind} {instance_id}"
    if name in ("", instance_id, *names) or flags.host_id(cluster, kind, name) == instance_id:
        return ""
    return f"the certificate proves {', '.join(names)}; not the name {name} of {kind} {instance_id}"


def resource_refusal_of(server: types_pb2.ServerV2) -> str:
    """Return why a resource cannot be used; empty when it can. Every auth, proxy and console reads what it says."""
    labels = server.metadata.labels
    if len(labels) > text_limits.MOST_LABELS:
        return f"server.metadata.labels: there are more than {text_limits.MOST_LABELS}"
    texts = [
        ("server.spec.hostname", server.spec.hostname, text_limits.LONGEST_NAME),
        ("server.spec.version", server.spec.version, text_limits.LONGEST_WORD),
        ("server.metadata.namespace", server.metadata.namespace, text_limits.LONGEST_WORD),
    ]
    for key, value in labels.items():
        texts += [("server.metadata.labels", text, text_limits.LONGEST_WORD) for text in (key, value)]
    return next(filter(None, (text_limits.refusal(*text) for text in texts)), "")
