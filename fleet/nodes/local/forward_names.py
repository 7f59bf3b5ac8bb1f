"""Names and modes of the forwards of an instance.

Shared by the forwarder and the commands that inject faults, which load no other code of the forwarder.
"""

from __future__ import annotations

from enum import StrEnum

#: Ports of an instance by its role; each is reached through a forward.
PORTS = {"auth": ("grpc", "diag", "http"), "proxy": ("grpc", "diag", "connect")}
#: The forward through which an instance reaches the backend.
BACKEND = "backend"


class ForwardMode(StrEnum):
    """How a forward treats connections."""

    PASS = "pass"  # noqa: S105 - no password
    #: Connections stay open and new ones are accepted, but data and ends of streams are held.
    #: Held data is delivered afterwards.
    HOLD = "hold"
    #: Existing connections are reset, new ones refused.
    CUT = "cut"
