"""Tunnels of TCP over gRPC without a fleet. docs/reference/tunnel.md"""

from __future__ import annotations
