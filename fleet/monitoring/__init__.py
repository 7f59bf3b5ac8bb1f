"""Monitoring: sources, pollers, the record in Redis, classification and history. docs/explanation/data-flow.md."""

from __future__ import annotations
