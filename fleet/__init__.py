"""Refloat: the recovery system and the console's engine; the import contract is in pyproject.toml."""

from __future__ import annotations

__version__ = "0.1.0"
