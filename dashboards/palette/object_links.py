"""Addresses of the pages of agents and instances, whose ids may be any text."""

from __future__ import annotations

from urllib.parse import quote


def agent_url(prefix: str, agent_id: str) -> str:
    """Return the address of the page of an agent. `prefix`: prefix of links in the cluster."""
    return f"{prefix}/agents/{quote(agent_id, safe='')}/"


def instance_url(prefix: str, instance_id: str) -> str:
    """Return the address of the page of an instance."""
    return f"{prefix}/instances/{quote(instance_id, safe='')}/"


def service_url(prefix: str, instance_id: str) -> str:
    """Return the address of the form that takes an instance out of service, or brings it back."""
    return f"{instance_url(prefix, instance_id)}service/"
