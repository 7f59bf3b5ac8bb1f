"""Pages of alerts."""

from __future__ import annotations
