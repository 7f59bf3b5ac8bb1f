"""The L7 gateway. docs/reference/gateway.md"""

from __future__ import annotations
