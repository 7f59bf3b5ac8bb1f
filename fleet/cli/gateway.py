"""`refloat gateway`: the same program as `python -m fleet.nodes gateway`."""

from __future__ import annotations

from fleet.nodes.gateway.server import command as gateway

__all__ = ["gateway"]
