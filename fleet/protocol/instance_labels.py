"""Resource labels in which auths and proxies publish what ServerV2 has no field for. docs/reference/wire.md."""

from __future__ import annotations

DIAG_LABEL = "refloat.dev/diag-addr"
#: Announce TTL, a Go duration.
TTL_LABEL = "refloat.dev/announce-ttl"
REGION_LABEL = "refloat.dev/region"
CONNECT_LABEL = "refloat.dev/connect-addr"
#: Address at which an auth serves the HTTP part of the auth API.
HTTP_LABEL = "refloat.dev/http-addr"
#: Id of the auth that received the newest heartbeat of a proxy; the auth writes the label. A proxy that writes to the
#: backend itself has no such label.
HEARTBEAT_AUTH_LABEL = "refloat.dev/heartbeat-auth"
#: The instance is draining (takes no new connections); the value is the reason, if any.
DRAINING_LABEL = "refloat.dev/draining"

#: Teleport's own labels of proxies (RFD 226, proxy groups).
GROUP_ID_LABEL = "teleport.internal/proxygroup-id"
GENERATION_LABEL = "teleport.internal/proxygroup-gen"
