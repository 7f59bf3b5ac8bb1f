"""Addresses of agents and instances."""

from __future__ import annotations

from dashboards.palette.object_links import agent_url, instance_url, service_url


def test_any_id_is_one_segment() -> None:
    """Ids may have slashes and question marks."""
    assert agent_url("/c/x", "a/b?") == "/c/x/agents/a%2Fb%3F/"
    assert instance_url("", "a b") == "/instances/a%20b/"
    assert service_url("", "a#b") == "/instances/a%23b/service/"
