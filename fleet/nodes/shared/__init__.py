"""What several nodes have in common."""

from __future__ import annotations
