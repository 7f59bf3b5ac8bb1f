"""TCP over gRPC without a fleet. docs/tunnel.md"""

from __future__ import annotations
