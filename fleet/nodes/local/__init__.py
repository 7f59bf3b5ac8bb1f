"""A local test fleet of real processes, and fault injection. docs/reference/local-fleet.md"""

from __future__ import annotations
