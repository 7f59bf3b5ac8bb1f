"""The History page: counts over time, instances over time, and two moments compared."""

from __future__ import annotations
