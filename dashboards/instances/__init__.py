"""The page of one auth or proxy, and its API. docs/reference/instance.md."""

from __future__ import annotations
