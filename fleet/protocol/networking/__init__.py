"""ClusterNetworkingConfig, and what nodes make of it. Pure. docs/networking-config.md"""

from __future__ import annotations
