"""A simulated fleet of any size on real ports. docs/simulate.md"""

from __future__ import annotations
