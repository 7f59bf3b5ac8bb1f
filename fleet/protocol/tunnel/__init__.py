"""Messages and decisions of both ends of a TCP-over-gRPC tunnel, and the services of agents behind it. Pure."""

from __future__ import annotations
