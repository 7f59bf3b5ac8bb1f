from __future__ import annotations

import grpc
import grpc.aio
import pytest

from fleet.monitoring.agent_report import parse_agent_report
from fleet.nodes.proxy import agent_status
from fleet.nodes.proxy.server import Proxy
from fleet.protocol.retry.grpc_http2 import Status
from fleet.wire import agent_status_pb2, agent_status_pb2_grpc
from tests.fakes.agents import Agents
from tests.fakes.plane import Plane, channel_to
from tests.fakes.raw_calls import call, deaf_connection
from tests.fakes.waiting import eventually


async def read_status(proxy: Proxy, agent_id: str, timeout: float = 30.0) -> bytes:  # noqa: ASYNC109 - it is gRPC's
    async with channel_to(proxy.instance.grpc_address) as channel:
        stub = agent_status_pb2_grpc.AgentStatusStub(channel)
        request = agent_status_pb2.ReadAgentStatusRequest(agent_id=agent_id)
        response = await stub.ReadAgentStatus(request, timeout=timeout)
        return bytes(response.document)


async def test_status_of_a_real_agent_is_parsed(plane: Plane) -> None:
    """The console and the agent use the same document format."""
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=600.0)
    group = await plane.agents(auth.instance.grpc_address, [proxy.instance.grpc_address])
    (agent,) = group.agents
    await eventually(lambda: len(proxy.table) == 1 and bool(agent.snapshot().tracked_proxies))
    report = parse_agent_report(await read_status(proxy, agent.identity.id))
    assert report.name == agent.identity.name
    assert report.tracker.claimed_proxies == (proxy.instance.flags.id,)
    assert [entry.proxy_id for entry in report.tracker.proxies] == [proxy.instance.flags.id]
    assert [tunnel.proxy_id for tunnel in report.tunnels] == [proxy.instance.flags.id]
    tunnel = proxy.table.find_current(agent.identity.id)
    assert tunnel is not None
    assert not tunnel.sessions


async def test_status_of_agent_without_tunnel_is_not_found(plane: Plane) -> None:
    """The proxy responds without asking an agent."""
    proxy = await plane.proxy(ttl=600.0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_status(proxy, "who")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "agent 'who' has no live tunnel to this proxy"


async def test_status_of_unresponsive_agent_times_out(
    plane: Plane, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller gets UNAVAILABLE instead of waiting."""
    monkeypatch.setattr(agent_status, "_DEFAULT_TIMEOUT", 0.2)
    proxy = await plane.proxy(ttl=600.0)
    await agents.connect(proxy, "mute")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_status(proxy, "mute")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert caught.value.details()


@pytest.mark.parametrize(("remaining_seconds", "timeout"), [(None, 5.0), (60.0, 5.0), (2.0, 1.8), (0.0, 0.0)])
def test_timeout_ends_before_the_deadline_of_the_caller(
    remaining_seconds: float | None, timeout: float
) -> None:
    """A response at the deadline would reach no caller and log a traceback."""
    assert agent_status._timeout_of(remaining_seconds) == pytest.approx(timeout)


async def test_unread_status_responses_are_limited(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few responses wait; further calls are refused."""
    monkeypatch.setattr(agent_status, "_MAX_UNREAD_PER_CALLER", 2)
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=600.0)
    services = tuple((f"{count}{'x' * 50}", "127.0.0.1:1") for count in range(30))
    group = await plane.agents(auth.instance.grpc_address, [proxy.instance.grpc_address], services=services)
    (agent,) = group.agents
    await eventually(lambda: len(proxy.table) == 1)
    request = agent_status_pb2.ReadAgentStatusRequest(agent_id=agent.identity.id).SerializeToString()
    connection = await deaf_connection(proxy.instance.grpc_address)
    calls = [call(connection, "/fleet.v1.AgentStatus/ReadAgentStatus", request) for _ in range(5)]
    await eventually(lambda: sum(stream.end_future.done() for stream in calls) == 3)
    assert {stream.end_future.result()[0] for stream in calls if stream.end_future.done()} == {
        Status.RESOURCE_EXHAUSTED
    }
    connection.close()
