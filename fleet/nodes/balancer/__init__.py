"""The L4 load balancer. docs/reference/destination-health.md"""

from __future__ import annotations
