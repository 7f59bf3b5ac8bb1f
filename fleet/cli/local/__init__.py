"""Commands for a local fleet: `refloat fleet`. docs/fleet-up.md"""

from __future__ import annotations
