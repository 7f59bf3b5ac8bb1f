"""Reconnect campaigns. docs/campaigns.md"""

from __future__ import annotations
