"""The services of an auth."""

from __future__ import annotations

import time
from pathlib import Path

import grpc
import grpc.aio
import pytest

from fleet.nodes.auth.server import Auth
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.shared import flags
from fleet.protocol.recovery.service_config import PickHealthyMode as PolicyMode
from fleet.protocol.recovery.service_config import ServiceConfig
from fleet.protocol.retry.grpc_http2 import Status
from fleet.transport import backend, service_config
from fleet.transport.backend import Kind
from fleet.wire import (
    fleet_pb2,
    fleet_pb2_grpc,
    grpcclientconfig_pb2,
    grpcclientconfig_pb2_grpc,
    presence_pb2,
    presence_pb2_grpc,
    types_pb2,
)
from tests.fakes.certificates import Certificates, channel_with
from tests.fakes.plane import Plane, channel_to, get
from tests.fakes.raw_calls import call, deaf_connection
from tests.fakes.waiting import eventually
from tests.fleet.conftest import HASTY


def heartbeat(name: str, ttl_ms: int = 60_000) -> fleet_pb2.HeartbeatRequest:
    agent = fleet_pb2.AgentResource(agent_id=name, name=name, ttl_ms=ttl_ms, labels={"a": "b"})
    return fleet_pb2.HeartbeatRequest(agent=agent)


async def test_heartbeat_is_in_every_auths_feed(plane: Plane) -> None:
    """What one auth wrote another lists, with who wrote it and how long it lives; deltas go on across auths."""
    first, second = await plane.auth("auth-1"), await plane.auth("auth-2")
    async with (
        channel_to(first.instance.grpc_address) as one,
        channel_to(second.instance.grpc_address) as two,
    ):
        began = time.monotonic()
        answer = await fleet_pb2_grpc.HeartbeatServiceStub(one).Heartbeat(heartbeat("a"))
        assert answer.auth_id == first.instance.flags.id
        feed = await fleet_pb2_grpc.AgentFeedStub(two).ListAgents(fleet_pb2.ListAgentsRequest())
        assert (feed.full, feed.revision) == (True, answer.revision)
        (entry,) = feed.agents
        assert (entry.agent.agent_id, entry.auth_id) == ("a", first.instance.flags.id)
        assert dict(entry.agent.labels) == {"a": "b"}
        passed = (time.monotonic() - began) * 1000
        assert 60_000 - passed - 100 < entry.expires_in_ms <= 60_000
        await fleet_pb2_grpc.HeartbeatServiceStub(two).Deregister(fleet_pb2.DeregisterRequest(agent_id="a"))
        since = fleet_pb2.ListAgentsRequest(epoch=feed.epoch, since_revision=feed.revision)
        delta = await fleet_pb2_grpc.AgentFeedStub(one).ListAgents(since)
        assert (delta.full, list(delta.removed), list(delta.agents)) == (False, ["a"], [])


async def test_heartbeat_metrics(plane: Plane) -> None:
    """An agent that heartbeats here is counted once, by the tunnels it wants and has; no more when it is gone."""
    auth = (await plane.auth()).instance
    async with channel_to(auth.grpc_address) as channel:
        stub = fleet_pb2_grpc.HeartbeatServiceStub(channel)
        for name, claimed in (("a", []), ("a", ["p1", "p2"]), ("b", ["p1"]), ("c", ["p1"])):
            request = heartbeat(name)
            request.agent.tracker.CopyFrom(fleet_pb2.TrackerSummary(wanted=2, claimed=claimed))
            await stub.Heartbeat(request)
        lines = (await get(auth, "/metrics"))[1].splitlines()
        assert [line for line in lines if line.startswith("refloat_auth_agents{")] == [
            'refloat_auth_agents{actual="1",desired="2"} 2.0',
            'refloat_auth_agents{actual="2",desired="2"} 1.0',
        ]
        await stub.Deregister(fleet_pb2.DeregisterRequest(agent_id="c"))
    lines = (await get(auth, "/metrics"))[1].splitlines()
    assert 'teleport_connected_resources{type="node"} 2.0' in lines
    assert 'refloat_auth_agents{actual="1",desired="2"} 1.0' in lines
    assert "heartbeat_connections_received_total 3.0" in lines


@pytest.mark.parametrize(
    "request_",
    [heartbeat(""), heartbeat("a" * 129), heartbeat("a", ttl_ms=0), heartbeat("a", ttl_ms=1 << 63)],
)
async def test_heartbeat_malformed(
    plane: Plane, request_: fleet_pb2.HeartbeatRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """A heartbeat without an id or a TTL that makes sense is refused, and never reaches the backend.

    Each is counted; of one host it is told once, whatever its port and the agent's name.
    """
    auth = await plane.auth()
    for name in ("x", "y"):
        request_.agent.name = name
        async with channel_to(auth.instance.grpc_address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await fleet_pb2_grpc.HeartbeatServiceStub(channel).Heartbeat(request_)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await auth.instance.backend.agents("", 0, 0)).agents == ()
    assert "refloat_heartbeats_refused_total 2.0" in (await get(auth.instance, "/metrics"))[1]
    assert caplog.text.count("heartbeat.refused: agent 'x' at ipv4:127.0.0.1: ") == 1
    assert caplog.text.count("heartbeat.refused") == 1


@pytest.mark.parametrize("fault", [ForwardMode.CUT, ForwardMode.HOLD])
async def test_backend_lost(plane: Plane, fault: ForwardMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats and feeds are answered UNAVAILABLE with a sentence, in the backend's time; the config still is."""
    link, url = await plane.backend_forward()
    auth = await plane.auth(backend=url, ttl=600.0)
    await link.change(mode=fault)
    assert HASTY < 1.0
    monkeypatch.setattr(backend, "TIMEOUT", HASTY)
    async with channel_to(auth.instance.grpc_address) as channel:
        await channel.channel_ready()
        calls = (
            lambda: fleet_pb2_grpc.HeartbeatServiceStub(channel).Heartbeat(heartbeat("a")),
            lambda: fleet_pb2_grpc.AgentFeedStub(channel).ListAgents(fleet_pb2.ListAgentsRequest()),
            lambda: presence_pb2_grpc.PresenceServiceStub(channel).ListProxyServers(
                presence_pb2.ListProxyServersRequest()
            ),
        )
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "the backend at 127.0.0.1" in (caught.value.details() or "")
        assert await service_config.discover(channel) is not None


async def test_presence_in_pages(plane: Plane) -> None:
    """Proxies and auths apart, by name, page by page; Teleport's defaults for the page size."""
    auth = await plane.auth()
    proxies = [await plane.proxy(f"proxy-{number}") for number in range(3)]
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = presence_pb2_grpc.PresenceServiceStub(channel)
        auths = await stub.ListAuthServers(presence_pb2.ListAuthServersRequest())
        assert [server.spec.hostname for server in auths.servers] == ["auth-1"]
        found, token = [], ""
        while True:
            page = await stub.ListProxyServers(
                presence_pb2.ListProxyServersRequest(page_size=2, page_token=token)
            )
            found += [server.metadata.name for server in page.servers]
            token = page.next_page_token
            if not token:
                break
    assert found == sorted(proxy.instance.flags.id for proxy in proxies)


async def test_service_config_in_both_dialects(plane: Plane) -> None:
    """On the wire the mode is a string and, for upstream's decoders, the enum's number under the same field."""
    auth = await plane.auth(config=ServiceConfig(PolicyMode.RECONNECT, ""))
    async with channel_to(auth.instance.grpc_address) as channel:
        found = await service_config.discover(channel)
        assert found is not None
        assert found.config == ServiceConfig(PolicyMode.RECONNECT, "")
        assert found.auth_id == auth.instance.flags.id
        answer = await grpcclientconfig_pb2_grpc.ServiceConfigDiscoveryServiceStub(channel).GetServiceConfig(
            grpcclientconfig_pb2.GetServiceConfigRequest()
        )
    assert answer.config.load_balancing_config[0].teleport_pick_healthy.mode == "reconnect"
    assert b"\n\treconnect\x08\x02" in answer.SerializeToString()


async def test_service_config_of_a_server_without_it(plane: Plane) -> None:
    """A server that does not know the service tells nothing: what holds stays."""
    proxy = await plane.proxy()
    async with channel_to(proxy.instance.grpc_address) as channel:
        found = await service_config.discover(channel)
    assert found is not None
    assert (found.config, found.auth_id) == (None, "")


def identified(name: str) -> fleet_pb2.HeartbeatRequest:
    """A heartbeat of the agent with that name and the id that is made from it."""
    request = heartbeat(flags.host_id("default", "agent", name))
    request.agent.name = name
    return request


async def test_certificate_binds_the_heartbeat_and_the_deregistration(plane: Plane, tmp_path: Path) -> None:
    """With mutual TLS an agent's certificate writes and deletes the resources of the agents it names, and no others."""
    certificates = Certificates(tmp_path)
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    ours = certificates.of("agents-1", "agent", "refloat:agents:agent-1..2")
    theirs = certificates.of("agent-3", "agent")
    address = auth.instance.grpc_address
    async with channel_with(address, ours) as one, channel_with(address, theirs) as two:
        own, other = fleet_pb2_grpc.HeartbeatServiceStub(one), fleet_pb2_grpc.HeartbeatServiceStub(two)
        for name in ("agent-1", "agent-2"):
            await own.Heartbeat(identified(name))
        for call in (
            other.Heartbeat(identified("agent-1")),
            other.Deregister(fleet_pb2.DeregisterRequest(agent_id=identified("agent-2").agent.agent_id)),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "the certificate is for agent-3" in (caught.value.details() or "")
        assert await names_at(auth) == {"agent-1", "agent-2"}
        await own.Deregister(fleet_pb2.DeregisterRequest(agent_id=identified("agent-2").agent.agent_id))
        assert await names_at(auth) == {"agent-1"}
        # Repeated, it finds nothing to delete and nobody to refuse.
        await own.Deregister(fleet_pb2.DeregisterRequest(agent_id=identified("agent-2").agent.agent_id))
    lines = (await get(auth.instance, "/metrics"))[1]
    assert "heartbeats_refused_total 1.0" in lines
    assert 'refloat_refused_total{kind="deregistration"} 1.0' in lines


@pytest.mark.parametrize("role", ["", "auth", "proxy", "gateway", "console"])
async def test_certificates_of_other_roles_are_no_agents(plane: Plane, tmp_path: Path, role: str) -> None:
    """Whatever name they carry, they neither heartbeat nor deregister for an agent."""
    certificates = Certificates(tmp_path)
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    address = auth.instance.grpc_address
    async with channel_with(address, certificates.of("agents", "agent", "refloat:agents:agent-1..9")) as one:
        await fleet_pb2_grpc.HeartbeatServiceStub(one).Heartbeat(identified("agent-1"))
    async with channel_with(address, certificates.of("agent-1", role)) as two:
        stub = fleet_pb2_grpc.HeartbeatServiceStub(two)
        for call in (
            stub.Heartbeat(identified("agent-1")),
            stub.Deregister(fleet_pb2.DeregisterRequest(agent_id=identified("agent-1").agent.agent_id)),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert await names_at(auth) == {"agent-1"}


async def names_at(auth: Auth) -> set[str]:
    """The names of the agents that have a resource."""
    return {entry.agent.name for entry in (await auth.instance.backend.agents("", 0, 0)).agents}


async def test_name_of_megabytes_is_refused(plane: Plane) -> None:
    """It reaches neither the backend nor the log, which has its beginning."""
    auth = await plane.auth()
    request = heartbeat("a")
    request.agent.name = "x" * 3_900_000
    async with channel_to(auth.instance.grpc_address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await fleet_pb2_grpc.HeartbeatServiceStub(channel).Heartbeat(request)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await names_at(auth) == set()


@pytest.mark.parametrize(
    "path",
    [
        "/fleet.v1.AgentFeed/ListAgents",
        "/teleport.presence.v1.PresenceService/ListAuthServers",
        "/teleport.presence.v1.PresenceService/ListProxyServers",
    ],
)
async def test_lists_that_their_asker_does_not_read(plane: Plane, path: str) -> None:
    """A few of them wait; more are refused, and others get theirs."""
    auth = await plane.auth()
    kinds: tuple[Kind, ...] = ("auth", "proxy")
    for kind in kinds:
        server = types_pb2.ServerV2(metadata=types_pb2.Metadata(name="a"), spec=types_pb2.ServerSpecV2())
        server.metadata.labels.update({f"l{count}": "x" * 100_000 for count in range(3)})
        await auth.instance.backend.put_instance(kind, server, 60.0)
    agent = heartbeat("a").agent
    agent.labels.update({f"l{count}": "x" * 100_000 for count in range(3)})
    await auth.instance.backend.put_agent(agent, "auth")
    deaf = await deaf_connection(auth.instance.grpc_address)
    calls = [call(deaf, path, b"") for _ in range(20)]
    await eventually(lambda: sum(each.ended.done() for each in calls) == 12)
    assert {each.ended.result()[0] for each in calls if each.ended.done()} == {Status.RESOURCE_EXHAUSTED}
    deaf.close()
