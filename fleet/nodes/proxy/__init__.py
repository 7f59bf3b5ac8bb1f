"""The proxy."""

from __future__ import annotations
