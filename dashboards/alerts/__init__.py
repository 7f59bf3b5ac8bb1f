"""Pages and API of alerts. docs/alerts.md"""

from __future__ import annotations
