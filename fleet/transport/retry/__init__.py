"""Interceptors that retry unary calls by GEP-3440, for grpc.aio and for grpc's blocking API. docs/reference/retries.md.

fleet/protocol/retry/policy.py decides.
"""

from __future__ import annotations
