"""API routes of changes."""

from __future__ import annotations
