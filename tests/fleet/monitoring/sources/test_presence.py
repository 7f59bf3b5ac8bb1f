from __future__ import annotations

import time
from datetime import UTC, datetime

import grpc
import pytest
from google.protobuf.message import Message

from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.presence import list_agents, list_instances, listed_agent_of, listed_instance_of
from fleet.protocol.text_limits import LONGEST_NAME
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind
from fleet.wire import fleet_pb2, types_pb2
from tests.fakes.instances import FakeAuth, agent_entry
from tests.fakes.source_contexts import make_source_context


async def test_agents_are_read_page_by_page(auth: FakeAuth, connections: Connections) -> None:
    """From each page's revision; the last entry of an agent counts."""
    pages = {
        5: fleet_pb2.ListAgentsResponse(
            epoch="e", revision=7, full=True, more=True, agents=[agent_entry("a", "x"), agent_entry("b", "x")]
        ),
        7: fleet_pb2.ListAgentsResponse(epoch="e", revision=9, agents=[agent_entry("c", "x")], removed=["a"]),
    }
    auth.agents = lambda request: pages[request.since_revision]
    changes = await list_agents(make_source_context(connections, auth, epoch="old", revision=5))
    assert (changes.epoch, changes.revision, changes.full, changes.complete) == ("e", 9, True, True)
    assert list(changes.agents) == ["a", "b", "c"]
    assert changes.agents["a"] is None
    agent_b = changes.agents["b"]
    assert agent_b is not None
    assert (agent_b.expires_at, agent_b.ttl, agent_b.mode, agent_b.tracked_count) == (
        120.0,
        20.0,
        ReconnectMode.RECONNECT,
        2,
    )


async def test_large_page_is_accepted(auth: FakeAuth, connections: Connections) -> None:
    """A page of a wide mesh exceeds gRPC's default message size."""
    entry = agent_entry("a", "x")
    entry.agent.tracker.claimed.extend(f"{number:036}" for number in range(150_000))
    auth.agents = lambda _: fleet_pb2.ListAgentsResponse(epoch="e", revision=7, full=True, agents=[entry])
    changes = await list_agents(make_source_context(connections, auth))
    agent = changes.agents["a"]
    assert agent is not None
    assert agent.claimed_count >= 150_000


async def test_read_agents_are_kept_when_time_runs_out(auth: FakeAuth, connections: Connections) -> None:
    """With the position of the next page."""
    page = fleet_pb2.ListAgentsResponse(
        epoch="e", revision=7, full=True, more=True, agents=[agent_entry("a", "x")]
    )
    auth.agents = lambda _: page
    seconds = iter([5.0, 0.0])
    changes = await list_agents(
        make_source_context(connections, auth, remaining_seconds=lambda: next(seconds))
    )
    assert (changes.revision, changes.complete, list(changes.agents)) == (7, False, ["a"])


async def test_error_of_the_auth_is_raised(auth: FakeAuth, connections: Connections) -> None:
    """The error says whether the auth responded."""
    auth.error_code = grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(SourceError, match="permission denied: told to fail") as error_info:
        await list_agents(make_source_context(connections, auth))
    assert error_info.value.has_response
    auth.error_code = grpc.StatusCode.UNAVAILABLE
    with pytest.raises(SourceError) as error_info:
        await list_instances(make_source_context(connections, auth))
    assert not error_info.value.has_response


async def test_instances_are_read_page_by_page(auth: FakeAuth, connections: Connections) -> None:
    """Auths and proxies; a resource without a name is left out."""
    auth.auths = [auth.resource(50.0, "10s"), types_pb2.ServerV2()]
    labels = {"teleport.internal/proxygroup-id": "g", "teleport.internal/proxygroup-gen": "3"}
    labels["refloat.dev/region"] = "eu-west"
    labels["refloat.dev/heartbeat-auth"] = "auth-id"
    auth.proxies = [auth.resource(60.0, "1m30s", **labels), auth.resource(70.0, "nonsense")]
    instances = await list_instances(make_source_context(connections, auth))
    kinds_and_resources = [(i.kind, i.resource) for i in instances]
    assert [
        (kind, r.expires_at, r.ttl, r.group, r.generation, r.region) for kind, r in kinds_and_resources
    ] == [
        (InstanceKind.AUTH, 50.0, 10.0, "", 0, ""),
        (InstanceKind.PROXY, 60.0, 90.0, "g", 3, "eu-west"),
        (InstanceKind.PROXY, 70.0, None, "", 0, ""),
    ]
    assert [i.resource.heartbeat_auth for i in instances] == ["", "auth-id", ""]
    first = instances[0].resource
    assert (first.name, first.address, first.diag_address) == ("auth-1", auth.address, auth.diag_address)


async def test_incomplete_instance_list_is_an_error(auth: FakeAuth, connections: Connections) -> None:
    """Missing instances would count as deregistered otherwise."""
    auth.proxies = [auth.resource(60.0), auth.resource(70.0)]
    seconds = iter([5.0, 5.0, 0.0])
    with pytest.raises(SourceError, match="timed out before the next page") as error_info:
        await list_instances(make_source_context(connections, auth, remaining_seconds=lambda: next(seconds)))
    assert error_info.value.has_response


def test_instance_with_minimal_resource() -> None:
    """As of a real Teleport: no diag address, no TTL, no expiry."""
    server = types_pb2.ServerV2()
    server.metadata.name = "id"
    resource = listed_instance_of(InstanceKind.PROXY, server).resource
    assert (resource.name, resource.address, resource.diag_address) == ("id", "", "")
    assert (resource.ttl, resource.expires_at, resource.generation) == (None, None, 0)


async def test_long_texts_of_agents_are_truncated(auth: FakeAuth, connections: Connections) -> None:
    """An auth of another version may return them; an invalid id is left out."""
    agent_with_long_texts, agent_with_long_id = agent_entry("a", "x" * 1_000), agent_entry("b" * 129, "x")
    agent_with_long_texts.agent.name, agent_with_long_texts.agent.via_proxy_id = "n" * 1_000_000, "p" * 1_000
    auth.agents = lambda _: fleet_pb2.ListAgentsResponse(
        epoch="e", revision=7, full=True, agents=[agent_with_long_texts, agent_with_long_id]
    )
    changes = await list_agents(make_source_context(connections, auth))
    assert list(changes.agents) == ["a"]
    agent = changes.agents["a"]
    assert agent is not None
    assert [len(text) for text in (agent.name, agent.auth_id, agent.via_proxy_id)] == [256, 128, 128]


def test_version_and_labels_of_agents_are_limited() -> None:
    """Keys and values are cut, unprintable characters are replaced, and the first 64 labels by key are kept."""
    agent = fleet_pb2.AgentResource(
        agent_id="a", version="v" * 300, labels={"env": "prod", "": "no key", "k" * 300: "x\0" * 200}
    )
    attributes = listed_agent_of(fleet_pb2.AgentEntry(agent=agent), 0.0).attributes
    assert len(attributes.version) == 256
    assert [key[:4] for key, _ in attributes.labels] == ["env", "kkkk"]
    assert attributes.labels[1][1].startswith("x\ufffdx")
    assert {len(text) for text in attributes.labels[1]} == {256}

    many = fleet_pb2.AgentResource(agent_id="a", labels={f"k{number:03}": "" for number in range(100)})
    labels = listed_agent_of(fleet_pb2.AgentEntry(agent=many), 0.0).attributes.labels
    assert (len(labels), labels[0][0], labels[-1][0]) == (64, "k000", "k063")
    empty = fleet_pb2.AgentEntry(agent=fleet_pb2.AgentResource(agent_id="a"))
    assert listed_agent_of(empty, 0.0).attributes == ("", ())


def test_long_texts_of_instances_are_truncated() -> None:
    """An invalid generation is read as 0."""
    server = types_pb2.ServerV2()
    server.metadata.name, server.spec.hostname = "p", "h" * 1_000_000
    server.spec.addr, server.spec.version = "a" * 1_000_000, "v" * 1_000_000
    for label in ("refloat.dev/diag-addr", "refloat.dev/region", "teleport.internal/proxygroup-id"):
        server.metadata.labels[label] = "x" * 1_000_000
    server.metadata.labels["teleport.internal/proxygroup-gen"] = "9" * 5_000
    server.metadata.labels["refloat.dev/heartbeat-auth"] = "a" * 1_000_000
    resource = listed_instance_of(InstanceKind.PROXY, server).resource
    texts = (
        resource.name,
        resource.address,
        resource.diag_address,
        resource.version,
        resource.group,
        resource.region,
    )
    assert [len(text) for text in texts] == [256] * 6
    assert len(resource.heartbeat_auth) == 128
    assert resource.generation == 0


async def test_ages_are_limited_to_a_century(auth: FakeAuth, connections: Connections) -> None:
    """So that pages can show them."""
    entry = agent_entry("a", "x")
    entry.expires_in_ms = entry.agent.ttl_ms = 2**64 - 1
    entry.agent.policy.read_age_ms = entry.agent.tracker.ttl_seen_ms = 2**64 - 1
    auth.agents = lambda _: fleet_pb2.ListAgentsResponse(epoch="e", revision=7, full=True, agents=[entry])
    now = time.time()
    changes = await list_agents(make_source_context(connections, auth, now=now))
    agent = changes.agents["a"]
    assert agent is not None
    assert datetime.fromtimestamp(agent.policy_read_at, UTC).year < 1930
    assert datetime.fromtimestamp(agent.expires_at, UTC).year > 2100
    assert agent.ttl == agent.ttl_seen == 3_155_760_000


def test_every_text_of_an_agent_is_limited() -> None:
    """In every field, also in fields that are added later."""
    entry = fleet_pb2.AgentEntry()
    _fill(entry, "x" * 100_000)
    agent = listed_agent_of(entry, 100.0)

    assert agent.name
    assert max(len(value) for value in agent if isinstance(value, str)) <= LONGEST_NAME


def _fill(message: Message, text: str) -> None:
    """Set every text field of a message to `text`."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        if field.message_type is not None:
            _fill(getattr(message, field.name), text)
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, text)
