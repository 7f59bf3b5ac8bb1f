from __future__ import annotations

import time
from datetime import UTC, datetime

import grpc
import pytest
from google.protobuf.message import Message

from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.presence import list_agents, list_instances, listed_agent, listed_instance
from fleet.protocol.text_limits import LONGEST_NAME
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind
from fleet.wire import fleet_pb2, types_pb2
from tests.fakes.instances import FakeAuth, agent_entry
from tests.fakes.questions import question


async def test_agents_in_pages(auth: FakeAuth, connections: Connections) -> None:
    """Asked on from each page's revision until there are no more; the last word on an agent counts."""
    pages = {
        5: fleet_pb2.ListAgentsResponse(
            epoch="e", revision=7, full=True, more=True, agents=[agent_entry("a", "x"), agent_entry("b", "x")]
        ),
        7: fleet_pb2.ListAgentsResponse(epoch="e", revision=9, agents=[agent_entry("c", "x")], removed=["a"]),
    }
    auth.agents = lambda request: pages[request.since_revision]
    changes = await list_agents(question(connections, auth, epoch="old", revision=5))
    assert (changes.epoch, changes.revision, changes.full, changes.complete) == ("e", 9, True, True)
    assert list(changes.agents) == ["a", "b", "c"]
    assert changes.agents["a"] is None
    told = changes.agents["b"]
    assert told is not None
    assert (told.expires_at, told.ttl, told.mode, told.tracked) == (120.0, 20.0, ReconnectMode.RECONNECT, 2)


async def test_agents_of_a_wide_mesh(auth: FakeAuth, connections: Connections) -> None:
    """A page in which each agent names hundreds of proxies is longer than what gRPC takes unless it is told to."""
    entry = agent_entry("a", "x")
    entry.agent.tracker.claimed.extend(f"{number:036}" for number in range(150_000))
    auth.agents = lambda _: fleet_pb2.ListAgentsResponse(epoch="e", revision=7, full=True, agents=[entry])
    changes = await list_agents(question(connections, auth))
    told = changes.agents["a"]
    assert told is not None
    assert told.claimed >= 150_000


async def test_agents_when_time_runs_out_between_pages(auth: FakeAuth, connections: Connections) -> None:
    """What came is kept, with the place to go on from."""
    page = fleet_pb2.ListAgentsResponse(
        epoch="e", revision=7, full=True, more=True, agents=[agent_entry("a", "x")]
    )
    auth.agents = lambda _: page
    left = iter([5.0, 0.0])
    changes = await list_agents(question(connections, auth, left=lambda: next(left)))
    assert (changes.revision, changes.complete, list(changes.agents)) == (7, False, ["a"])


async def test_auth_that_cannot_answer(auth: FakeAuth, connections: Connections) -> None:
    """One exception, that says whether anybody was there."""
    auth.fails = grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(SourceError, match="permission denied: told to fail") as failed:
        await list_agents(question(connections, auth))
    assert failed.value.has_response
    auth.fails = grpc.StatusCode.UNAVAILABLE
    with pytest.raises(SourceError) as failed:
        await list_instances(question(connections, auth))
    assert not failed.value.has_response


async def test_instances_in_pages(auth: FakeAuth, connections: Connections) -> None:
    """Auths and proxies, all pages; a resource without a name is nobody."""
    auth.auths = [auth.resource(50.0, "10s"), types_pb2.ServerV2()]
    labels = {"teleport.internal/proxygroup-id": "g", "teleport.internal/proxygroup-gen": "3"}
    labels["refloat.dev/region"] = "eu-west"
    labels["refloat.dev/heartbeat-auth"] = "auth-id"
    auth.proxies = [auth.resource(60.0, "1m30s", **labels), auth.resource(70.0, "nonsense")]
    found = await list_instances(question(connections, auth))
    listed_as = [(i.kind, i.resource) for i in found]
    assert [(kind, r.expires_at, r.ttl, r.group, r.generation, r.region) for kind, r in listed_as] == [
        (InstanceKind.AUTH, 50.0, 10.0, "", 0, ""),
        (InstanceKind.PROXY, 60.0, 90.0, "g", 3, "eu-west"),
        (InstanceKind.PROXY, 70.0, None, "", 0, ""),
    ]
    assert [i.resource.heartbeat_auth for i in found] == ["", "auth-id", ""]
    first = found[0].resource
    assert (first.name, first.address, first.diag_address) == ("auth-1", auth.address, auth.diag_address)


async def test_instances_when_time_runs_out_between_pages(auth: FakeAuth, connections: Connections) -> None:
    """A list without its last page is none: whom it does not name would count as deregistered."""
    auth.proxies = [auth.resource(60.0), auth.resource(70.0)]
    left = iter([5.0, 5.0, 0.0])
    with pytest.raises(SourceError, match="timed out before the next page") as failed:
        await list_instances(question(connections, auth, left=lambda: next(left)))
    assert failed.value.has_response


def test_instance_that_says_little() -> None:
    """As a real Teleport's: no diag address, no TTL, maybe no expiry."""
    server = types_pb2.ServerV2()
    server.metadata.name = "id"
    found = listed_instance(InstanceKind.PROXY, server).resource
    assert (found.name, found.address, found.diag_address) == ("id", "", "")
    assert (found.ttl, found.expires_at, found.generation) == (None, None, 0)


async def test_agents_with_texts_of_megabytes(auth: FakeAuth, connections: Connections) -> None:
    """An auth of another version lets them through: names are cut, and an id that is none is left out."""
    long, endless = agent_entry("a", "x" * 1_000), agent_entry("b" * 129, "x")
    long.agent.name, long.agent.via_proxy_id = "n" * 1_000_000, "p" * 1_000
    auth.agents = lambda _: fleet_pb2.ListAgentsResponse(
        epoch="e", revision=7, full=True, agents=[long, endless]
    )
    changes = await list_agents(question(connections, auth))
    assert list(changes.agents) == ["a"]
    told = changes.agents["a"]
    assert told is not None
    assert [len(text) for text in (told.name, told.auth_id, told.via_proxy_id)] == [256, 128, 128]


def test_instance_with_texts_of_megabytes() -> None:
    """Every text of its resource is cut; a generation that no computer counts to is none."""
    server = types_pb2.ServerV2()
    server.metadata.name, server.spec.hostname = "p", "h" * 1_000_000
    server.spec.addr, server.spec.version = "a" * 1_000_000, "v" * 1_000_000
    for label in ("refloat.dev/diag-addr", "refloat.dev/region", "teleport.internal/proxygroup-id"):
        server.metadata.labels[label] = "x" * 1_000_000
    server.metadata.labels["teleport.internal/proxygroup-gen"] = "9" * 5_000
    server.metadata.labels["refloat.dev/heartbeat-auth"] = "a" * 1_000_000
    found = listed_instance(InstanceKind.PROXY, server).resource
    texts = (found.name, found.address, found.diag_address, found.version, found.group, found.region)
    assert [len(text) for text in texts] == [256] * 6
    assert len(found.heartbeat_auth) == 128
    assert found.generation == 0


async def test_agent_with_ages_beyond_all_dates(auth: FakeAuth, connections: Connections) -> None:
    """An agent says what it likes: what is longer than a century counts as one, and pages can show it."""
    entry = agent_entry("a", "x")
    entry.expires_in_ms = entry.agent.ttl_ms = 2**64 - 1
    entry.agent.policy.read_age_ms = entry.agent.tracker.ttl_seen_ms = 2**64 - 1
    auth.agents = lambda _: fleet_pb2.ListAgentsResponse(epoch="e", revision=7, full=True, agents=[entry])
    now = time.time()
    changes = await list_agents(question(connections, auth, now=now))
    told = changes.agents["a"]
    assert told is not None
    assert datetime.fromtimestamp(told.policy_read_at, UTC).year < 1930
    assert datetime.fromtimestamp(told.expires_at, UTC).year > 2100
    assert told.ttl == told.ttl_seen == 3_155_760_000


def test_every_text_of_an_agent_is_bounded() -> None:
    """Whatever field of an entry a text is in, also one that the entry gets later, what is kept of it is short."""
    entry = fleet_pb2.AgentEntry()
    _fill(entry, "x" * 100_000)
    agent = listed_agent(entry, 100.0)

    assert agent.name
    assert max(len(value) for value in agent if isinstance(value, str)) <= LONGEST_NAME


def _fill(message: Message, text: str) -> None:
    """Put a text into every field of a message that takes one."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        if field.message_type is not None:
            _fill(getattr(message, field.name), text)
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, text)
