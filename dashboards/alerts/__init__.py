"""Pages and API of incidents, silences, alert rules, notification channels and routes. docs/reference/alerts.md"""

from __future__ import annotations
