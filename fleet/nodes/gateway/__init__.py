"""The L7 gateway. docs/gateway.md"""

from __future__ import annotations
