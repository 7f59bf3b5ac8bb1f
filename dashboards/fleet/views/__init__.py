"""Pages: Fleet now, map, agents, retire agent."""

from __future__ import annotations
