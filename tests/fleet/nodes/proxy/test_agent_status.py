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


async def read(proxy: Proxy, agent_id: str, timeout: float = 30.0) -> bytes:  # noqa: ASYNC109 - it is gRPC's
    async with channel_to(proxy.instance.grpc_address) as channel:
        stub = agent_status_pb2_grpc.AgentStatusStub(channel)
        request = agent_status_pb2.ReadAgentStatusRequest(agent_id=agent_id)
        answer = await stub.ReadAgentStatus(request, timeout=timeout)
        return bytes(answer.document)


async def test_real_agent_tells_of_itself(plane: Plane) -> None:
    """What the console reads is what the agent says: both ends mean the same document."""
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=600.0)
    group = await plane.agents(auth.instance.grpc_address, [proxy.instance.grpc_address])
    (agent,) = group.agents
    await eventually(lambda: len(proxy.table) == 1 and bool(agent.snapshot().tracked_proxies))
    report = parse_agent_report(await read(proxy, agent.identity.id))
    assert report.name == agent.identity.name
    assert report.tracker.claimed == (proxy.instance.flags.id,)
    assert [known.proxy_id for known in report.tracker.proxies] == [proxy.instance.flags.id]
    assert [tunnel.proxy_id for tunnel in report.tunnels] == [proxy.instance.flags.id]
    tunnel = proxy.table.find_current(agent.identity.id)
    assert tunnel is not None
    assert not tunnel.sessions


async def test_agent_without_a_tunnel_here(plane: Plane) -> None:
    """Nobody is asked."""
    proxy = await plane.proxy(ttl=600.0)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await read(proxy, "who")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert refused.value.details() == "agent 'who' has no live tunnel to this proxy"


async def test_agent_that_does_not_take_the_session(
    plane: Plane, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tunnel that carries nothing is said to be so; whoever asks does not wait for it."""
    monkeypatch.setattr(agent_status, "_WITHIN", 0.2)
    proxy = await plane.proxy(ttl=600.0)
    await agents.connect(proxy, "mute")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await read(proxy, "mute")
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert refused.value.details()


@pytest.mark.parametrize(("left", "within"), [(None, 5.0), (60.0, 5.0), (2.0, 1.8), (0.0, 0.0)])
def test_answer_is_there_before_the_caller_leaves(left: float | None, within: float) -> None:
    """One that ends in the same moment would be sent to nobody, with a traceback in the proxy's log."""
    assert agent_status._timeout_of(left) == pytest.approx(within)


async def test_documents_that_their_caller_does_not_read(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few of them wait; more are refused."""
    monkeypatch.setattr(agent_status, "_MOST_OF_ONE", 2)
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=600.0)
    services = tuple((f"{count}{'x' * 50}", "127.0.0.1:1") for count in range(30))
    group = await plane.agents(auth.instance.grpc_address, [proxy.instance.grpc_address], services=services)
    (agent,) = group.agents
    await eventually(lambda: len(proxy.table) == 1)
    request = agent_status_pb2.ReadAgentStatusRequest(agent_id=agent.identity.id).SerializeToString()
    deaf = await deaf_connection(proxy.instance.grpc_address)
    calls = [call(deaf, "/fleet.v1.AgentStatus/ReadAgentStatus", request) for _ in range(5)]
    await eventually(lambda: sum(each.ended.done() for each in calls) == 3)
    assert {each.ended.result()[0] for each in calls if each.ended.done()} == {Status.RESOURCE_EXHAUSTED}
    deaf.close()
