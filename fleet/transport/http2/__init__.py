"""HTTP/2 (RFC 9113) for a gateway that passes calls on as they are, whatever their type. docs/gateway.md

Our own and not gRPC's: gRPC's Python servers do not tell the host a call is for, read and write whole messages, and
replace what belongs to the call (user agent, compression). Header compression is decoded by the `hpack` package.
"""

from __future__ import annotations
