"""Pages and API of the fleet: agents, instances, the map."""

from __future__ import annotations
