"""What the ends of a TCP-over-gRPC tunnel say and decide, and what agents serve through it. Pure."""

from __future__ import annotations
