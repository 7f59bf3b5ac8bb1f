"""Tests of fleet.monitoring.state."""

from __future__ import annotations
