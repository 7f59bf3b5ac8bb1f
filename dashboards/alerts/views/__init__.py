"""Pages of incidents, silences, alert rules, notification channels and routes."""

from __future__ import annotations
