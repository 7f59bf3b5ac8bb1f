"""Programs this program starts: children that die with their parent, and the embedded Valkey."""

from __future__ import annotations
