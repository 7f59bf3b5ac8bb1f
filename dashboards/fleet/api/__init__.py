"""API routes of the fleet."""

from __future__ import annotations
