"""Tests of fleet.state."""

from __future__ import annotations
