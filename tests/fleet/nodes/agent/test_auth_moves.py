"""Agents that connect to another auth after an advisory, with real auths and proxies."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.nodes.agent.program import Agent, AgentFlags, AgentGroup
from fleet.nodes.auth.server import Auth
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.proxy.server import Proxy
from fleet.nodes.shared import addresses
from fleet.processes.valkey import find_free_port
from fleet.protocol.recovery.service_config import PickHealthyMode as PolicyMode
from fleet.protocol.recovery.service_config import ServiceConfig
from fleet.transport.backend import AgentPage
from fleet.wire import fleet_pb2
from tests.fakes.plane import Plane
from tests.fakes.waiting import eventually


def _instance_id(node: Auth | Proxy) -> str:
    return node.instance.flags.id


def _advice(leave: str = "", advisory_id: str = "x") -> fleet_pb2.AuthReconnectAdvisory:
    return fleet_pb2.AuthReconnectAdvisory(advisory_id=advisory_id, reason="try", leave_auth_id=leave)


async def _find_agent_entry(auth: Auth) -> fleet_pb2.AgentEntry | None:
    page: AgentPage = await auth.instance.backend.list_agents("", 0, 0)
    return next(iter(page.agents), None)


async def _start_agent(
    plane: Plane, auths: list[str], *proxies: Proxy, **flags: Any
) -> tuple[Agent, AgentGroup]:
    """Start an agent, and wait until it is connected to an auth and a proxy."""
    group = AgentGroup(
        AgentFlags(
            auth=tuple(addresses.parse(address) for address in auths),
            proxy=tuple(addresses.parse(proxy.instance.grpc_address) for proxy in proxies),
            redial_step=0.05,
            **{"announce_ttl": 600.0, **flags},
        )
    )
    group.start()
    plane.adopt(group)
    (agent,) = group.agents
    await eventually(lambda: bool(agent.auth_id) and bool(agent.tunnels.proxy_ids))
    return agent, group


def _reserve_address() -> str:
    """Return an address for an auth that starts later, so that an agent first connects to the other auth."""
    return addresses.join("127.0.0.1", find_free_port())


def _advise(proxy: Proxy, advisory: fleet_pb2.AuthReconnectAdvisory) -> fleet_pb2.AdviseReconnectResponse:
    return proxy.tunnels.auth_reconnect_advisor.advise_agents(advisory, (), 0)


def _count_moves(group: AgentGroup, outcome: str) -> float:
    sample = group.registry.get_sample_value("refloat_agent_auth_moves_total", {"outcome": outcome})
    return sample or 0.0


@pytest.mark.parametrize("mode", [PolicyMode.PICK_FIRST, PolicyMode.RECONNECT])
async def test_advised_agent_moves_to_other_auth_without_a_gap(plane: Plane, mode: PolicyMode) -> None:
    """The agent's entry stays present, its tunnel stays open, and the first auth can stop afterwards."""
    config = ServiceConfig(mode, "" if mode is PolicyMode.RECONNECT else None)
    first, proxy, second_address = (
        await plane.auth("auth-1", config=config),
        await plane.proxy(),
        _reserve_address(),
    )
    agent, group = await _start_agent(
        plane, [first.instance.grpc_address, second_address], proxy, announce_ttl=20.0
    )
    second = await plane.auth("auth-2", config=config, listen=addresses.parse(second_address))
    assert agent.auth_id == _instance_id(first)
    tunnels, advice = agent.tunnels.tunnels, _advice(_instance_id(first))
    absence_count = 0

    async def has_moved() -> bool:
        nonlocal absence_count
        entry = await _find_agent_entry(second)
        absence_count += entry is None
        return entry is not None and entry.auth_id == _instance_id(second)

    assert _advise(proxy, advice).advised_count == 1
    await eventually(has_moved)
    await eventually(lambda: _advise(proxy, advice).moved_count == 1)
    assert absence_count == 0
    assert agent.tunnels.tunnels == tunnels
    assert _count_moves(group, "moved") == 1.0
    await plane.stop(first)
    heartbeats = agent.heartbeats.last_auth_id, agent.heartbeats.policy
    assert heartbeats[0] == _instance_id(second)
    assert heartbeats[1] is not None
    assert heartbeats[1].auth_id == _instance_id(second)


async def test_advisory_through_proxy_moves_agent_off_frozen_auth(plane: Plane) -> None:
    """The advisory arrives through the tunnel while the auth sends nothing; a pick_first channel alone would stay."""
    first, proxy, second_address = await plane.auth("auth-1"), await plane.proxy(), _reserve_address()
    forward = await plane.forward(first.instance.grpc_address)
    agent, _ = await _start_agent(
        plane, [addresses.join(*forward.listen), second_address], proxy, announce_ttl=20.0
    )
    second = await plane.auth("auth-2", listen=addresses.parse(second_address))
    assert agent.auth_id == _instance_id(first)
    await forward.change(mode=ForwardMode.HOLD)
    advice = _advice(_instance_id(first))
    _advise(proxy, advice)
    await eventually(lambda: _advise(proxy, advice).moved_count == 1)
    assert agent.auth_id == _instance_id(second)

    async def is_listed_by_second() -> bool:
        entry = await _find_agent_entry(second)
        return entry is not None and entry.auth_id == _instance_id(second)

    await eventually(is_listed_by_second)


async def test_agent_stays_if_other_auth_is_draining(plane: Plane) -> None:
    """The agent reports the reason, and its heartbeats continue."""
    first, proxy, second_address = await plane.auth("auth-1"), await plane.proxy(), _reserve_address()
    agent, group = await _start_agent(plane, [first.instance.grpc_address, second_address], proxy)
    second = await plane.auth("auth-2", listen=addresses.parse(second_address))
    second.instance.declared_status.drain("full")
    advice = _advice(_instance_id(first))
    _advise(proxy, advice)
    await eventually(lambda: _advise(proxy, advice).staying_count == 1)
    (reason,) = _advise(proxy, advice).staying_reasons.values()
    assert f"auth {_instance_id(second)} is draining and takes no new connections" in reason
    assert agent.auth_id == agent.heartbeats.auth_id == _instance_id(first)
    assert _count_moves(group, "stayed") == 1.0


@pytest.mark.slow
async def test_agent_stays_if_other_auth_has_no_backend(plane: Plane) -> None:
    """The other auth accepts no heartbeat, so the agent reports that and stays."""
    forward, url = await plane.backend_forward()
    first, proxy, second_address = await plane.auth("auth-1"), await plane.proxy(), _reserve_address()
    await _start_agent(plane, [first.instance.grpc_address, second_address], proxy)
    await plane.auth("auth-2", backend=url, listen=addresses.parse(second_address))
    await forward.change(mode=ForwardMode.CUT)
    advice = _advice(_instance_id(first))
    _advise(proxy, advice)
    await eventually(lambda: _advise(proxy, advice).staying_count == 1)
    (reason,) = _advise(proxy, advice).staying_reasons.values()
    assert "did not accept a heartbeat" in reason
    entry = await _find_agent_entry(first)
    assert entry is not None
    assert entry.auth_id == _instance_id(first)


@pytest.mark.slow
async def test_agent_connected_through_proxy_leaves_unhealthy_auth(plane: Plane) -> None:
    """The proxy connects the agent to a ready auth, although the agent's own pick_first policy would stay."""
    forward, url = await plane.backend_forward()
    unhealthy, proxy = await plane.auth("sick", backend=url, ttl=1.0), await plane.proxy()
    agent, _ = await _start_agent(
        plane, [unhealthy.instance.grpc_address], proxy, announce_ttl=1.0, auth_via_proxy=True
    )
    assert agent.auth_id == _instance_id(unhealthy)
    healthy = await plane.auth("healthy", listen=addresses.parse(_reserve_address()))
    await forward.change(mode=ForwardMode.CUT)

    async def has_no_entry() -> bool:
        return await _find_agent_entry(healthy) is None

    await eventually(has_no_entry)
    # A proxy that has not detected the failure may choose the same auth again; then the agent is advised again.
    numbers = iter(range(1000))

    def has_moved() -> bool:
        _advise(proxy, _advice(_instance_id(unhealthy), f"advice-{next(numbers)}"))
        return agent.heartbeats.last_auth_id == _instance_id(healthy)

    await eventually(has_moved)


async def test_advisory_for_another_auth_keeps_connection(plane: Plane) -> None:
    """The agent replies that it is connected elsewhere, and keeps its connection."""
    auth, proxy = await plane.auth("auth-1"), await plane.proxy()
    agent, group = await _start_agent(plane, [auth.instance.grpc_address], proxy)
    channel, advice = agent.heartbeats.channel, _advice("another")
    _advise(proxy, advice)
    await eventually(lambda: _advise(proxy, advice).elsewhere_count == 1)
    assert agent.heartbeats.channel is channel
    assert _count_moves(group, "elsewhere") == 1.0


async def test_second_advisory_during_a_move_gets_the_same_outcome(plane: Plane) -> None:
    """If two proxies advise an agent at once, it moves once and replies to each advisory id."""
    first, proxy, second_address = await plane.auth("auth-1"), await plane.proxy(), _reserve_address()
    agent, group = await _start_agent(plane, [first.instance.grpc_address, second_address], proxy)
    await plane.auth("auth-2", listen=addresses.parse(second_address))
    replies: list[fleet_pb2.AuthAdvisoryReply] = []

    async def reply(response: fleet_pb2.AuthAdvisoryReply) -> None:
        replies.append(response)

    for advisory_id in ("x", "y"):
        agent.auth_moves.advise(_advice(_instance_id(first), advisory_id), reply)
    await eventually(lambda: len(replies) == 2)
    assert [response.advisory_id for response in replies] == ["x", "y"]
    assert {response.outcome for response in replies} == {fleet_pb2.AuthAdvisoryReply.OUTCOME_MOVED}
    assert _count_moves(group, "moved") == 1.0


async def test_draining_auth_moves_its_agents_by_heartbeat_responses(plane: Plane) -> None:
    """When the other auth drains as well, agents stay connected to it instead of moving back and forth."""
    first, proxy, second_address = await plane.auth("auth-1"), await plane.proxy(), _reserve_address()
    agent, group = await _start_agent(
        plane, [first.instance.grpc_address, second_address], proxy, announce_ttl=1.0
    )
    second = await plane.auth("auth-2", listen=addresses.parse(second_address))
    assert agent.auth_id == _instance_id(first)
    first.instance.declared_status.drain("kernel update")
    await eventually(lambda: agent.auth_id == _instance_id(second))
    assert _count_moves(group, "moved") == 1.0
    second.instance.declared_status.drain("kernel update")
    stay_count = _count_moves(group, "stayed")
    await eventually(lambda: _count_moves(group, "stayed") >= stay_count + 2.0)
    assert agent.auth_id == _instance_id(second)
    assert _count_moves(group, "moved") == 1.0
