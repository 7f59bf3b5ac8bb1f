"""Interceptors that retry unary calls as GEP-3440 has it, for grpc.aio and for grpc's blocking API. docs/retries.md.

What is decided is in fleet/protocol/retry/policy.py.
"""

from __future__ import annotations
