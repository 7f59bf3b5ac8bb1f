"""Views of the pages of changes."""

from __future__ import annotations
