"""Permissions of the HTTP part of the auth API: each call has its roles, and an instance writes only its own resource.

RFD 226 lists who uses which call. Without client certificates nothing can be proven: docs/reference/auth-http.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleet.nodes.shared import flags, operators
from fleet.protocol import text_limits
from fleet.transport.backend import AuthOrProxy
from fleet.transport.peers import Caller
from fleet.transport.tls import SHARED_NAMES
from fleet.wire import types_pb2

#: Roles that may make each writing call. A writing call that is not listed here is refused.
WRITER_ROLES: Mapping[str, frozenset[str]] = {
    "UpsertProxy": frozenset({"proxy"}),
    "DeleteProxy": frozenset({"proxy", *operators.OPERATOR_ROLES}),
    "DeleteAllProxies": operators.OPERATOR_ROLES,
    "UpsertAuthServer": frozenset({"auth"}),
    **dict.fromkeys(
        ("UpsertTunnelConnection", "DeleteTunnelConnection", "DeleteTunnelConnections"),
        frozenset({"auth", "proxy", *operators.OPERATOR_ROLES}),
    ),
}


def call_refusal_of(call: str, caller: Caller | None, host: str, *, allow_anonymous: bool) -> str:
    """Return why a caller may not make a writing call; empty if it may.

    `host` is the address on which the auth listens. `allow_anonymous`: callers without a certificate may write
    off loopback too.
    """
    role = None if caller is None else caller.role
    return operators.refusal_of(
        role, f"call {call}", host, WRITER_ROLES.get(call, frozenset()), allow_anonymous=allow_anonymous
    )


def identity_refusal_of(
    caller: Caller | None, kind: AuthOrProxy, instance_id: str, cluster: str, name: str = ""
) -> str:
    """Return why a caller may not write an instance's resource; empty if it may.

    The certificate must prove the id of the instance, or the name that the id is derived from. It must also prove the
    `name` that people see, or one proxy could be listed as another. Operators may write any.
    """
    if caller is None or caller.role in operators.OPERATOR_ROLES:
        return ""
    proven_names = [proven_name for proven_name in caller.names if proven_name not in SHARED_NAMES]
    if instance_id not in proven_names and all(
        flags.host_id(cluster, kind, proven_name) != instance_id for proven_name in proven_names
    ):
        return f"the certificate is for {', '.join(proven_names) or 'no name'}, not for {kind} {instance_id}"
    if name in ("", instance_id, *proven_names) or flags.host_id(cluster, kind, name) == instance_id:
        return ""
    return (
        f"the certificate is for {', '.join(proven_names)}, not for the name {name} of {kind} {instance_id}"
    )


def resource_refusal_of(server: types_pb2.ServerV2) -> str:
    """Return why a resource is invalid; empty if it is valid. Every auth, proxy and poller reads these texts."""
    labels = server.metadata.labels
    if len(labels) > text_limits.MOST_LABELS:
        return f"server.metadata.labels: more than {text_limits.MOST_LABELS} labels"
    texts = [
        ("server.spec.hostname", server.spec.hostname, text_limits.LONGEST_NAME),
        ("server.spec.version", server.spec.version, text_limits.LONGEST_TEXT),
        ("server.metadata.namespace", server.metadata.namespace, text_limits.LONGEST_TEXT),
    ]
    for key, value in labels.items():
        texts += [("server.metadata.labels", text, text_limits.LONGEST_TEXT) for text in (key, value)]
    return next(filter(None, (text_limits.refusal_of(*text) for text in texts)), "")
