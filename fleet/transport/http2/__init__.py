"""HTTP/2 (RFC 9113) for a gateway that forwards calls unchanged, whatever their type. docs/reference/gateway.md

Our own instead of gRPC's: gRPC's Python servers hide the host of a call, read and write whole messages, and replace
parts of the call (user agent, compression). The `hpack` package decodes compressed headers.
"""

from __future__ import annotations
