"""What must outlive Redis."""

from __future__ import annotations

from fleet.models.access import Access, ClusterLimit
from fleet.models.tokens import ApiToken

__all__ = ["Access", "ApiToken", "ClusterLimit"]
