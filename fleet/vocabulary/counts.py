"""Numbers of things, as people read them."""

from __future__ import annotations


def format_agent_count(count: int) -> str:
    """Return a number of agents with its noun: `1 agent`, `1,234 agents`."""
    return f"{count:,} agent{'' if count == 1 else 's'}"
