"""The L4 load balancer. docs/destination-health.md"""

from __future__ import annotations
