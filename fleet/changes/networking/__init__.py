"""Changes of the networking config. docs/reference/networking-config.md"""

from __future__ import annotations
