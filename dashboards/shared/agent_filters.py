"""Filters of the list of agents as text, in the language that `dashboards.fleet.agent_query` reads."""

from __future__ import annotations

import glob
import shlex


def format_version_filter(version: str) -> str:
    """Return the filter for agents with this version."""
    return shlex.quote(f"version:{glob.escape(version)}")


def format_label_filter(key: str, label_value: str) -> str:
    """Return the filter for agents with this label; empty if the key has a colon, which no filter can have."""
    return "" if ":" in key else shlex.quote(f"label.{key}:{glob.escape(label_value)}")
