"""Incidents by cause: rules, grouping, inhibition, silences and routes are pure; stores and senders are shells.

docs/alerts.md.
"""

from __future__ import annotations
