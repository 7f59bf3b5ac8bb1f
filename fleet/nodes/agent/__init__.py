"""The agents."""

from __future__ import annotations
