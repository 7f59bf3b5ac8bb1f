from __future__ import annotations

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.presence import ListedAgent
from fleet.monitoring.sources.teleport.resources import host_resource_of
from fleet.monitoring.sources.teleport.watched_agents import WatchedAgents
from fleet.wire import authservice_pb2
from tests.fakes.teleport_auth import delete_event, make_app, make_node, put_event

NOW = 100.0


def agents_of(*resources: authservice_pb2.PaginatedResource, **auths: str) -> WatchedAgents:
    """Return agents whose list was taken already."""
    agents = WatchedAgents(filter(None, map(host_resource_of, resources)), auths)
    agents.take_changes(NOW)
    return agents


def apply(agents: WatchedAgents, *events: authservice_pb2.Event) -> dict[str, ListedAgent | None]:
    for event in events:
        agents.apply(event)
    return agents.take_changes(NOW)


def test_list_is_the_first_change() -> None:
    agents = WatchedAgents(filter(None, map(host_resource_of, [make_node("host-1")])), {"host-1": "auth-id"})
    [(host, agent)] = agents.take_changes(NOW).items()
    assert agent is not None
    assert (host, agent.name, agent.auth_id, agent.expires_at) == (
        "host-1",
        "host-1.example",
        "auth-id",
        700.0,
    )
    assert agents.take_changes(NOW) == {}


def test_heartbeat_and_deletion_are_changes_of_their_host_only() -> None:
    agents = agents_of(make_node("host-1"), make_node("host-2"))
    changes = apply(agents, put_event(make_node("host-1", expires_at=900)))
    agent = changes.pop("host-1")
    assert agent is not None
    assert (agent.expires_at, changes) == (900.0, {})
    assert apply(agents, delete_event("node", "host-2")) == {"host-2": None}
    assert apply(agents, delete_event("node", "host-2")) == {}


def test_host_with_another_resource_stays() -> None:
    """Its expiry is the latest of what is left; the last deletion removes it."""
    agents = agents_of(make_app("host-1", "wiki", expires_at=900), make_app("host-1", "chat", expires_at=800))
    agent = apply(agents, delete_event("app_server", "wiki", "host-1"))["host-1"]
    assert agent is not None
    assert agent.expires_at == 800.0
    assert apply(agents, delete_event("app_server", "chat", "host-1")) == {"host-1": None}


def test_deletion_that_names_no_host() -> None:
    """The only host with such a resource is meant; of several only a list tells which."""
    agents = agents_of(make_app("host-1", "wiki"), make_app("host-2", "chat"), make_app("host-3", "chat"))
    assert apply(agents, delete_event("app_server", "wiki")) == {"host-1": None}
    assert apply(agents, delete_event("app_server", "unknown")) == {}
    with pytest.raises(SourceError, match="names no host"):
        apply(agents, delete_event("app_server", "chat"))


def test_node_without_a_tunnel_is_no_agent_any_more() -> None:
    agents = agents_of(make_node("host-1"))
    assert apply(agents, put_event(make_node("host-1", use_tunnel=False))) == {"host-1": None}


def test_events_of_other_kinds_are_no_changes() -> None:
    """Proxies and auths come in the same field as nodes."""
    proxy_event = put_event(make_node("proxy-1"))
    proxy_event.server.kind = "proxy"
    first_event = authservice_pb2.Event(type=authservice_pb2.INIT)
    assert apply(agents_of(), proxy_event, delete_event("proxy", "proxy-1"), first_event) == {}


def test_inventory_changes_the_agents_of_other_auths() -> None:
    """A new host has no auth until the next inventory."""
    agents = agents_of(make_node("host-1"), make_node("host-2"), **{"host-1": "auth-1", "host-2": "auth-1"})
    assert not agents.has_new_hosts
    new_agent = apply(agents, put_event(make_node("host-3")))["host-3"]
    assert new_agent is not None
    assert (new_agent.auth_id, agents.has_new_hosts) == ("", True)
    agents.set_auths({"host-1": "auth-1", "host-2": "auth-2", "host-3": "auth-2"})
    changes = agents.take_changes(NOW)
    assert sorted(changes) == ["host-2", "host-3"]
    assert {agent.auth_id for agent in changes.values() if agent} == {"auth-2"}
    assert not agents.has_new_hosts


def test_memory_is_bounded() -> None:
    agents = WatchedAgents((), {}, max_resources=1)
    agents.apply(put_event(make_node("host-1")))
    agents.apply(put_event(make_node("host-1", expires_at=900)))
    with pytest.raises(SourceError, match="more than 1 resources"):
        agents.apply(put_event(make_node("host-2")))
