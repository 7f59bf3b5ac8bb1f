"""A whole local fleet of real processes, and its faults. docs/fleet-up.md"""

from __future__ import annotations
