"""Alerting. Rules, grouping, inhibition, silences and routes are pure; only the store and senders do I/O.

docs/reference/alerts.md.
"""

from __future__ import annotations
