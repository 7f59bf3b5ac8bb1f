"""The page *Agents*: filters in its address, suggestions, groups, columns, saved views."""

from __future__ import annotations
