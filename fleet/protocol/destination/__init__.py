"""Destination health: probe schedule, state machine and load-balancing picker. Pure.

docs/reference/destination-health.md
"""

from __future__ import annotations
