"""Reconnect campaigns. docs/reference/campaigns.md"""

from __future__ import annotations
