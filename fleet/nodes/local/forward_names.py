"""The forwards of an instance: what they are called and what each may do with connections.

Commands that inject faults share these names with the forwarder, and load nothing else of it.
"""

from __future__ import annotations

from enum import StrEnum

#: Ports of an instance, by its role: others reach each through a forward.
PORTS = {"auth": ("grpc", "diag", "http"), "proxy": ("grpc", "diag", "connect")}
#: The forward through which an instance reaches the backend.
BACKEND = "backend"


class ForwardMode(StrEnum):
    """What a forward does with connections."""

    PASS = "pass"  # noqa: S105 - no password
    #: Connections stay open and new ones are accepted, but no byte passes, nor the end of a stream.
    #: Nothing is lost: it all passes after.
    HOLD = "hold"
    #: Existing connections are reset, new ones refused.
    CUT = "cut"
