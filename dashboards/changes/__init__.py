"""Pages and API of changes. docs/changes.md"""

from __future__ import annotations
