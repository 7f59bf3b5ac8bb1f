"""ClusterNetworkingConfig, and the behaviour that follows from it. Pure. docs/reference/networking-config.md"""

from __future__ import annotations
