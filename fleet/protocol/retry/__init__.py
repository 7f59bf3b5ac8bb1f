"""Retries of gRPC calls as GEP-3440 has them, and the routes that carry them. Pure. docs/retry.md"""

from __future__ import annotations
