from __future__ import annotations

import grpc
import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.teleport.resources import (
    KINDS,
    host_resource_of,
    list_agents,
    read_agent_lists,
)
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.capabilities import Capability
from fleet.wire import authservice_pb2, resources_pb2
from tests.fakes.source_contexts import make_source_context
from tests.fakes.teleport_auth import FakeTeleportAuth, make_app, make_node


async def test_hosts_of_all_kinds_are_agents(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """One per host, however many resources it serves: with the latest expiry, and the auth of the inventory."""
    teleport_auth.resources = {
        "node": [make_node(f"host-{number}") for number in range(5)],
        "app_server": [make_app("host-1", "wiki", expires_at=710), make_app("host-9", "chat")],
    }
    teleport_auth.inventory = {"host-1": "auth-id", "proxy-id": "auth-id"}
    context = make_source_context(connections, teleport_auth)
    changes = await list_agents(context)
    assert (changes.full, changes.complete, context.missing_capabilities) == (True, True, {})
    assert sorted(changes.agents) == ["host-0", "host-1", "host-2", "host-3", "host-4", "host-9"]
    agent, app_agent = changes.agents["host-1"], changes.agents["host-9"]
    assert agent is not None
    assert app_agent is not None
    assert (agent.name, agent.auth_id, agent.expires_at, agent.ttl) == (
        *("host-1.example", "auth-id"),
        *(710.0, 600.0),
    )
    assert agent.attributes.version == "18.1.0"
    assert agent.attributes.labels == (("env", "prod"), ("site", "oslo"))
    assert (app_agent.name, app_agent.auth_id, app_agent.attributes.labels) == ("host-9.example", "", ())


async def test_agent_depends_on_its_only_proxy(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """As proxy peering reports it; the newer resource of a host counts."""
    nodes = [make_node(f"host-{number}") for number in range(3)]
    nodes[1].node.spec.proxy_ids.append("proxy-1-id")
    nodes[2].node.spec.proxy_ids.extend(["proxy-1-id", "proxy-2-id"])
    app = make_app("host-1", "wiki", expires_at=710)
    app.app_server.spec.proxy_ids.append("proxy-2-id")
    teleport_auth.resources = {"node": nodes}
    agents = (await list_agents(make_source_context(connections, teleport_auth))).agents
    assert [agent and agent.via_proxy_id for agent in agents.values()] == ["", "proxy-1-id", ""]
    teleport_auth.resources = {"node": nodes, "app_server": [app]}
    agent = (await list_agents(make_source_context(connections, teleport_auth))).agents["host-1"]
    assert agent is not None
    assert agent.via_proxy_id == "proxy-2-id"


async def test_equal_lists_are_equal_changes(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """A repeated list must not look like a change, and a heartbeat must: by the revision."""
    teleport_auth.resources = {"node": [make_node("host-1")], "app_server": [make_app("host-1", "wiki")]}
    first, second = [
        await list_agents(make_source_context(connections, teleport_auth, now=now)) for now in (100.0, 105.0)
    ]
    assert first == second
    teleport_auth.resources["node"] = [make_node("host-1", expires_at=900)]
    third = await list_agents(make_source_context(connections, teleport_auth))
    assert third.revision != first.revision


async def test_kinds_that_the_role_may_not_list_are_left_out(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """The others stay; without any kind the cluster has no list of agents, and a reason."""
    teleport_auth.resources = {"node": [make_node("host-1")], "app_server": [make_app("host-9", "chat")]}
    teleport_auth.refusals = {"app_server": grpc.StatusCode.PERMISSION_DENIED}
    context = make_source_context(connections, teleport_auth)
    assert list((await list_agents(context)).agents) == ["host-1"]
    assert Capability.AGENTS not in context.missing_capabilities
    assert (await read_agent_lists(context)).refused_kinds == {
        "app_server": "The role of Refloat's identity lacks the verbs list and read for app_server."
    }
    teleport_auth.refusals = dict.fromkeys(KINDS, grpc.StatusCode.PERMISSION_DENIED)
    assert not (await list_agents(context)).agents
    assert "lacks the verbs" in context.missing_capabilities[Capability.AGENTS]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            grpc.StatusCode.PERMISSION_DENIED,
            "The role of Refloat's identity lacks the verbs list and read for",
        ),
        (
            grpc.StatusCode.UNIMPLEMENTED,
            "This version of Teleport does not have an inventory (GetInstances).",
        ),
    ],
)
async def test_agents_without_inventory_have_no_auth(
    teleport_auth: FakeTeleportAuth, connections: Connections, code: grpc.StatusCode, reason: str
) -> None:
    """The role or the version does not allow it, which is no failure."""
    teleport_auth.resources = {"node": [make_node("host-1")]}
    teleport_auth.refusals = {"GetInstances": code}
    context = make_source_context(connections, teleport_auth)
    agent = (await list_agents(context)).agents["host-1"]
    assert agent is not None
    assert agent.auth_id == ""
    assert context.missing_capabilities[Capability.AGENT_TO_AUTH].startswith(reason)


async def test_failed_or_endless_list_is_an_error(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """Agents must not look deleted because an auth is sick or repeats a page."""
    teleport_auth.resources = {"node": [make_node(f"host-{number}") for number in range(5)]}
    teleport_auth.refusals = {"db_server": grpc.StatusCode.UNAVAILABLE}
    with pytest.raises(SourceError, match="unavailable"):
        await list_agents(make_source_context(connections, teleport_auth))
    teleport_auth.refusals, teleport_auth.is_endless = {}, True
    with pytest.raises(SourceError, match="does not end"):
        await list_agents(make_source_context(connections, teleport_auth))


async def test_lying_auth_gives_bounded_agents(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """The year 9999, a negative expiry, and names without end."""
    teleport_auth.resources = {
        "node": [
            make_node("late", expires_at=253402300799),
            make_node("early", expires_at=-5),
            make_node("x" * 300),
        ],
        "app_server": [make_app("", "no host")],
    }
    agents = (await list_agents(make_source_context(connections, teleport_auth))).agents
    late, early = agents["late"], agents["early"]
    assert late is not None
    assert early is not None
    assert (late.expires_at, early.expires_at) == (100.0 + 366 * 24 * 3600, 0.0)
    assert sorted(agents) == ["early", "late"]


def test_hosts_without_a_tunnel_are_no_agents() -> None:
    """Nodes that proxies dial, and OpenSSH servers that Teleport only registers."""
    assert host_resource_of(make_node("direct", use_tunnel=False)) is None
    assert host_resource_of(make_node("ssh", sub_kind="openssh-ec2-ice")) is None
    assert host_resource_of(authservice_pb2.PaginatedResource()) is None


def test_every_kind_names_its_host() -> None:
    desktop = resources_pb2.WindowsDesktopServiceV3()
    desktop.header.metadata.name, desktop.spec.hostname = "host-1", "win.example"
    database = resources_pb2.DatabaseServerV3()
    database.spec.host_id, database.spec.hostname = "host-1", "db.example"
    kubernetes = resources_pb2.KubernetesServerV3()
    kubernetes.spec.host_id = "host-1"
    resources = [
        host_resource_of(authservice_pb2.PaginatedResource(windows_desktop_service=desktop)),
        host_resource_of(authservice_pb2.PaginatedResource(database_server=database)),
        host_resource_of(authservice_pb2.PaginatedResource(kubernetes_server=kubernetes)),
    ]
    assert [(resource.host_id, resource.name) for resource in resources if resource] == [
        ("host-1", "win.example"),
        ("host-1", "db.example"),
        ("host-1", "host-1"),
    ]
