"""Labels by which auths and proxies say, in their resource, what ServerV2 has no field for. docs/nodes.md."""

from __future__ import annotations

DIAG_LABEL = "refloat.dev/diag-addr"
#: As a Go duration.
TTL_LABEL = "refloat.dev/announce-ttl"
REGION_LABEL = "refloat.dev/region"
CONNECT_LABEL = "refloat.dev/connect-addr"
#: An auth serves the HTTP part of the auth API there.
HTTP_LABEL = "refloat.dev/http-addr"
#: Id of the auth that took the newest heartbeat of a proxy; that auth writes it. A proxy that writes to the backend
#: itself has none.
HEARTBEAT_AUTH_LABEL = "refloat.dev/heartbeat-auth"
#: It takes nobody new; the reason, if one was given.
DRAINING_LABEL = "refloat.dev/draining"

#: Teleport's own, of proxies (RFD 226, proxy groups).
GROUP_ID_LABEL = "teleport.internal/proxygroup-id"
GENERATION_LABEL = "teleport.internal/proxygroup-gen"
