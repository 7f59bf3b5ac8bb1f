"""Retries of gRPC calls by GEP-3440, and the routes that configure them. Pure. docs/reference/retries.md"""

from __future__ import annotations
