"""The gRPC services of an auth."""

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
from fleet.transport.backend import AuthOrProxy
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
from tests.fakes.plane import Plane, channel_to, get_diag
from tests.fakes.raw_calls import call, deaf_connection
from tests.fakes.waiting import eventually
from tests.fleet.conftest import HASTY


def heartbeat_request(name: str, ttl_ms: int = 60_000) -> fleet_pb2.HeartbeatRequest:
    agent = fleet_pb2.AgentResource(agent_id=name, name=name, ttl_ms=ttl_ms, labels={"a": "b"})
    return fleet_pb2.HeartbeatRequest(agent=agent)


async def test_heartbeat_to_one_auth_is_listed_by_another(plane: Plane) -> None:
    """The entry has the auth's id and the expiry; a delta of one auth continues the revision of another."""
    first, second = await plane.auth("auth-1"), await plane.auth("auth-2")
    async with (
        channel_to(first.instance.grpc_address) as first_channel,
        channel_to(second.instance.grpc_address) as second_channel,
    ):
        started_at = time.monotonic()
        response = await fleet_pb2_grpc.HeartbeatServiceStub(first_channel).Heartbeat(heartbeat_request("a"))
        assert response.auth_id == first.instance.flags.id
        feed = await fleet_pb2_grpc.AgentFeedStub(second_channel).ListAgents(fleet_pb2.ListAgentsRequest())
        assert (feed.full, feed.revision) == (True, response.revision)
        (entry,) = feed.agents
        assert (entry.agent.agent_id, entry.auth_id) == ("a", first.instance.flags.id)
        assert dict(entry.agent.labels) == {"a": "b"}
        elapsed_ms = (time.monotonic() - started_at) * 1000
        assert 60_000 - elapsed_ms - 100 < entry.expires_in_ms <= 60_000
        await fleet_pb2_grpc.HeartbeatServiceStub(second_channel).Deregister(
            fleet_pb2.DeregisterRequest(agent_id="a")
        )
        since = fleet_pb2.ListAgentsRequest(epoch=feed.epoch, since_revision=feed.revision)
        delta = await fleet_pb2_grpc.AgentFeedStub(first_channel).ListAgents(since)
        assert (delta.full, list(delta.removed), list(delta.agents)) == (False, ["a"], [])


async def test_agents_are_counted_by_desired_and_actual_tunnels(plane: Plane) -> None:
    """An agent with several heartbeats is counted once, and no more after it is deregistered."""
    auth = (await plane.auth()).instance
    async with channel_to(auth.grpc_address) as channel:
        stub = fleet_pb2_grpc.HeartbeatServiceStub(channel)
        for name, proxy_ids in (("a", []), ("a", ["p1", "p2"]), ("b", ["p1"]), ("c", ["p1"])):
            request = heartbeat_request(name)
            request.agent.tracker.CopyFrom(
                fleet_pb2.TrackerSummary(desired_tunnel_count=2, claimed=proxy_ids)
            )
            await stub.Heartbeat(request)
        lines = (await get_diag(auth, "/metrics"))[1].splitlines()
        assert [line for line in lines if line.startswith("refloat_auth_agents{")] == [
            'refloat_auth_agents{actual="1",desired="2"} 2.0',
            'refloat_auth_agents{actual="2",desired="2"} 1.0',
        ]
        await stub.Deregister(fleet_pb2.DeregisterRequest(agent_id="c"))
    lines = (await get_diag(auth, "/metrics"))[1].splitlines()
    assert 'teleport_connected_resources{type="node"} 2.0' in lines
    assert 'refloat_auth_agents{actual="1",desired="2"} 1.0' in lines
    assert "heartbeat_connections_received_total 3.0" in lines


@pytest.mark.parametrize(
    "request_",
    [
        heartbeat_request(""),
        heartbeat_request("a" * 129),
        heartbeat_request("a", ttl_ms=0),
        heartbeat_request("a", ttl_ms=1 << 63),
    ],
)
async def test_malformed_heartbeat_is_refused_and_logged_once_per_host(
    plane: Plane, request_: fleet_pb2.HeartbeatRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """A heartbeat without a valid id or TTL never reaches the backend.

    Every refusal is counted; one host is logged once, whatever its port and the agent's name are.
    """
    auth = await plane.auth()
    for name in ("x", "y"):
        request_.agent.name = name
        async with channel_to(auth.instance.grpc_address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await fleet_pb2_grpc.HeartbeatServiceStub(channel).Heartbeat(request_)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await auth.instance.backend.list_agents("", 0, 0)).agents == ()
    assert "refloat_heartbeats_refused_total 2.0" in (await get_diag(auth.instance, "/metrics"))[1]
    assert caplog.text.count("heartbeat.refused: agent 'x' at ipv4:127.0.0.1: ") == 1
    assert caplog.text.count("heartbeat.refused") == 1


@pytest.mark.parametrize("fault", [ForwardMode.CUT, ForwardMode.HOLD])
async def test_calls_without_backend_are_unavailable_within_its_timeout(
    plane: Plane, fault: ForwardMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats and lists fail with a message; the service config is still served."""
    forward, url = await plane.backend_forward()
    auth = await plane.auth(backend=url, ttl=600.0)
    await forward.change(mode=fault)
    assert HASTY < 1.0
    monkeypatch.setattr(backend, "TIMEOUT", HASTY)
    async with channel_to(auth.instance.grpc_address) as channel:
        await channel.channel_ready()
        calls = (
            lambda: fleet_pb2_grpc.HeartbeatServiceStub(channel).Heartbeat(heartbeat_request("a")),
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
        assert await service_config.request_service_config(channel) is not None


async def test_presence_is_listed_in_pages(plane: Plane) -> None:
    """Proxies and auths have separate lists, sorted by id, with Teleport's page sizes."""
    auth = await plane.auth()
    proxies = [await plane.proxy(f"proxy-{number}") for number in range(3)]
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = presence_pb2_grpc.PresenceServiceStub(channel)
        auths = await stub.ListAuthServers(presence_pb2.ListAuthServersRequest())
        assert [server.spec.hostname for server in auths.servers] == ["auth-1"]
        proxy_ids, token = [], ""
        while True:
            page = await stub.ListProxyServers(
                presence_pb2.ListProxyServersRequest(page_size=2, page_token=token)
            )
            proxy_ids += [server.metadata.name for server in page.servers]
            token = page.next_page_token
            if not token:
                break
    assert proxy_ids == sorted(proxy.instance.flags.id for proxy in proxies)


async def test_service_config_has_mode_as_text_and_number(plane: Plane) -> None:
    """The same field holds the mode as a string and, for Teleport's decoders, as the enum's number."""
    auth = await plane.auth(config=ServiceConfig(PolicyMode.RECONNECT, ""))
    async with channel_to(auth.instance.grpc_address) as channel:
        discovery = await service_config.request_service_config(channel)
        assert discovery is not None
        assert discovery.config == ServiceConfig(PolicyMode.RECONNECT, "")
        assert discovery.auth_id == auth.instance.flags.id
        response = await grpcclientconfig_pb2_grpc.ServiceConfigDiscoveryServiceStub(
            channel
        ).GetServiceConfig(grpcclientconfig_pb2.GetServiceConfigRequest())
    assert response.config.load_balancing_config[0].teleport_pick_healthy.mode == "reconnect"
    assert b"\n\treconnect\x08\x02" in response.SerializeToString()


async def test_server_without_service_config_returns_no_config(plane: Plane) -> None:
    """The client keeps the config that it has."""
    proxy = await plane.proxy()
    async with channel_to(proxy.instance.grpc_address) as channel:
        discovery = await service_config.request_service_config(channel)
    assert discovery is not None
    assert (discovery.config, discovery.auth_id) == (None, "")


def heartbeat_of_agent(name: str) -> fleet_pb2.HeartbeatRequest:
    """Return a heartbeat of the agent with this name and the id that belongs to the name."""
    request = heartbeat_request(flags.host_id("default", "agent", name))
    request.agent.name = name
    return request


async def test_agent_certificate_is_valid_for_its_agents_only(plane: Plane, tmp_path: Path) -> None:
    """With mutual TLS a certificate sends heartbeats and deregisters for the agents that it names, and no others."""
    certificates = Certificates(tmp_path)
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    pair_certificate = certificates.of("agents-1", "agent", "refloat:agents:agent-1..2")
    other_certificate = certificates.of("agent-3", "agent")
    address = auth.instance.grpc_address
    async with (
        channel_with(address, pair_certificate) as pair_channel,
        channel_with(address, other_certificate) as other_channel,
    ):
        pair_stub, other_stub = (
            fleet_pb2_grpc.HeartbeatServiceStub(pair_channel),
            fleet_pb2_grpc.HeartbeatServiceStub(other_channel),
        )
        for name in ("agent-1", "agent-2"):
            await pair_stub.Heartbeat(heartbeat_of_agent(name))
        for call in (
            other_stub.Heartbeat(heartbeat_of_agent("agent-1")),
            other_stub.Deregister(
                fleet_pb2.DeregisterRequest(agent_id=heartbeat_of_agent("agent-2").agent.agent_id)
            ),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "the certificate is for agent-3" in (caught.value.details() or "")
        assert await list_agent_names(auth) == {"agent-1", "agent-2"}
        await pair_stub.Deregister(
            fleet_pb2.DeregisterRequest(agent_id=heartbeat_of_agent("agent-2").agent.agent_id)
        )
        assert await list_agent_names(auth) == {"agent-1"}
        # The repeated call has nothing to delete and is not refused.
        await pair_stub.Deregister(
            fleet_pb2.DeregisterRequest(agent_id=heartbeat_of_agent("agent-2").agent.agent_id)
        )
    lines = (await get_diag(auth.instance, "/metrics"))[1]
    assert "heartbeats_refused_total 1.0" in lines
    assert 'refloat_refused_inputs_total{kind="deregistration"} 1.0' in lines


@pytest.mark.parametrize("role", ["", "auth", "proxy", "gateway", "console"])
async def test_certificate_of_another_role_is_refused_as_agent(
    plane: Plane, tmp_path: Path, role: str
) -> None:
    """Whatever name the certificate has, it cannot send heartbeats or deregister for an agent."""
    certificates = Certificates(tmp_path)
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    address = auth.instance.grpc_address
    async with channel_with(
        address, certificates.of("agents", "agent", "refloat:agents:agent-1..9")
    ) as agent_channel:
        await fleet_pb2_grpc.HeartbeatServiceStub(agent_channel).Heartbeat(heartbeat_of_agent("agent-1"))
    async with channel_with(address, certificates.of("agent-1", role)) as other_channel:
        stub = fleet_pb2_grpc.HeartbeatServiceStub(other_channel)
        for call in (
            stub.Heartbeat(heartbeat_of_agent("agent-1")),
            stub.Deregister(
                fleet_pb2.DeregisterRequest(agent_id=heartbeat_of_agent("agent-1").agent.agent_id)
            ),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert await list_agent_names(auth) == {"agent-1"}


async def list_agent_names(auth: Auth) -> set[str]:
    """Return the names of the agents that the auth lists."""
    return {entry.agent.name for entry in (await auth.instance.backend.list_agents("", 0, 0)).agents}


async def test_agent_name_of_megabytes_is_refused(plane: Plane) -> None:
    """The name does not reach the backend, and the log has only its beginning."""
    auth = await plane.auth()
    request = heartbeat_request("a")
    request.agent.name = "x" * 3_900_000
    async with channel_to(auth.instance.grpc_address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await fleet_pb2_grpc.HeartbeatServiceStub(channel).Heartbeat(request)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await list_agent_names(auth) == set()


@pytest.mark.parametrize(
    "path",
    [
        "/fleet.v1.AgentFeed/ListAgents",
        "/teleport.presence.v1.PresenceService/ListAuthServers",
        "/teleport.presence.v1.PresenceService/ListProxyServers",
    ],
)
async def test_unread_list_responses_are_limited(plane: Plane, path: str) -> None:
    """A few responses wait for a client that does not read; further calls of the client are refused."""
    auth = await plane.auth()
    kinds: tuple[AuthOrProxy, ...] = ("auth", "proxy")
    for kind in kinds:
        server = types_pb2.ServerV2(metadata=types_pb2.Metadata(name="a"), spec=types_pb2.ServerSpecV2())
        server.metadata.labels.update({f"l{count}": "x" * 100_000 for count in range(3)})
        await auth.instance.backend.put_instance(kind, server, 60.0)
    agent = heartbeat_request("a").agent
    agent.labels.update({f"l{count}": "x" * 100_000 for count in range(3)})
    await auth.instance.backend.put_agent(agent, "auth")
    connection = await deaf_connection(auth.instance.grpc_address)
    calls = [call(connection, path, b"") for _ in range(20)]
    await eventually(lambda: sum(stream.end_future.done() for stream in calls) == 12)
    assert {stream.end_future.result()[0] for stream in calls if stream.end_future.done()} == {
        Status.RESOURCE_EXHAUSTED
    }
    connection.close()
