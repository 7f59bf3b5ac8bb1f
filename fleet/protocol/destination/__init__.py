"""The health of destinations: probed, judged, picked from. Pure. docs/destination-health.md"""

from __future__ import annotations
