"""Pages and API routes of changes. docs/reference/changes.md"""

from __future__ import annotations
