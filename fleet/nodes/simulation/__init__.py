"""A simulated fleet of any size on real ports. docs/reference/simulated-fleet.md"""

from __future__ import annotations
