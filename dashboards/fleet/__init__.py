"""Pages and API of the fleet: Fleet now, map, agents, instances."""

from __future__ import annotations
