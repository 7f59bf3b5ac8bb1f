"""Lasting requests of operators: drains, degradations, retirements."""

from __future__ import annotations
