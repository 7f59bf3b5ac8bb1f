"""Live updates of the fleet by WebSocket. docs/reference/live.md"""

from __future__ import annotations
