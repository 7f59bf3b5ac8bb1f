"""Changes of the networking config. docs/networking-config.md"""

from __future__ import annotations
