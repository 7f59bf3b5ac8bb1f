"""Agents that connect to another auth on advice, against real auths and proxies."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.nodes.agent.program import Agent, AgentFlags, AgentGroup
from fleet.nodes.auth.server import Auth
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.proxy.server import Proxy
from fleet.nodes.shared import addresses
from fleet.processes.valkey import free_port
from fleet.protocol.recovery.service_config import PickHealthyMode as PolicyMode
from fleet.protocol.recovery.service_config import ServiceConfig
from fleet.transport.backend import AgentPage
from fleet.wire import fleet_pb2
from tests.fakes.plane import Plane
from tests.fakes.waiting import eventually


def _id(node: Auth | Proxy) -> str:
    return node.instance.flags.id


def _advice(leave: str = "", advisory_id: str = "x") -> fleet_pb2.AuthReconnectAdvisory:
    return fleet_pb2.AuthReconnectAdvisory(advisory_id=advisory_id, reason="try", leave_auth_id=leave)


async def _entry(auth: Auth) -> fleet_pb2.AgentEntry | None:
    page: AgentPage = await auth.instance.backend.agents("", 0, 0)
    return next(iter(page.agents), None)


async def _agent(plane: Plane, auths: list[str], *proxies: Proxy, **flags: Any) -> tuple[Agent, AgentGroup]:
    """Start an agent, and wait until it has a tunnel and its resource is written."""
    made = AgentGroup(
        AgentFlags(
            auth=tuple(addresses.parse(address) for address in auths),
            proxy=tuple(addresses.parse(proxy.instance.grpc_address) for proxy in proxies),
            redial_step=0.05,
            **{"announce_ttl": 600.0, **flags},
        )
    )
    made.start()
    plane.adopt(made)
    (agent,) = made.agents
    await eventually(lambda: bool(agent.auth_id) and bool(agent.tunnels.proxies))
    return agent, made


def _port() -> str:
    """Return an address of an auth that is started later: an agent that starts meanwhile is connected to the other."""
    return addresses.join("127.0.0.1", free_port())


def _answer(proxy: Proxy, advisory: fleet_pb2.AuthReconnectAdvisory) -> fleet_pb2.AdviseReconnectResponse:
    return proxy.tunnels.auth_reconnects.advise_agents(advisory, (), 0)


def _moves(group: AgentGroup, outcome: str) -> float:
    found = group.registry.get_sample_value("refloat_agent_auth_moves_total", {"outcome": outcome})
    return found or 0.0


@pytest.mark.parametrize("mode", [PolicyMode.PICK_FIRST, PolicyMode.RECONNECT])
async def test_agent_moves_without_a_gap(plane: Plane, mode: PolicyMode) -> None:
    """Its resource is there all the while, its tunnel is the one it had, and the old auth is not needed any more."""
    config = ServiceConfig(mode, "" if mode is PolicyMode.RECONNECT else None)
    first, proxy, later = await plane.auth("auth-1", config=config), await plane.proxy(), _port()
    agent, group = await _agent(plane, [first.instance.grpc_address, later], proxy, announce_ttl=20.0)
    second = await plane.auth("auth-2", config=config, listen=addresses.parse(later))
    assert agent.auth_id == _id(first)
    tunnels, advice = agent.tunnels.tunnels, _advice(_id(first))
    absent = 0

    async def moved() -> bool:
        nonlocal absent
        entry = await _entry(second)
        absent += entry is None
        return entry is not None and entry.auth_id == _id(second)

    assert _answer(proxy, advice).advised == 1
    await eventually(moved)
    await eventually(lambda: _answer(proxy, advice).moved == 1)
    assert absent == 0
    assert agent.tunnels.tunnels == tunnels
    assert _moves(group, "moved") == 1.0
    await plane.stop(first)
    heartbeats = agent.heartbeats.last_auth_id, agent.heartbeats.policy
    assert heartbeats[0] == _id(second)
    assert heartbeats[1] is not None
    assert heartbeats[1].auth_id == _id(second)


async def test_advice_arrives_while_the_auth_is_frozen(plane: Plane) -> None:
    """Through the tunnel: no byte of the auth passes, and a policy of pick_first alone would stay for ever."""
    first, proxy, later = await plane.auth("auth-1"), await plane.proxy(), _port()
    link = await plane.forward(first.instance.grpc_address)
    agent, _ = await _agent(plane, [addresses.join(*link.listen), later], proxy, announce_ttl=20.0)
    second = await plane.auth("auth-2", listen=addresses.parse(later))
    assert agent.auth_id == _id(first)
    await link.change(mode=ForwardMode.HOLD)
    advice = _advice(_id(first))
    _answer(proxy, advice)
    await eventually(lambda: _answer(proxy, advice).moved == 1)
    assert agent.auth_id == _id(second)

    async def written() -> bool:
        entry = await _entry(second)
        return entry is not None and entry.auth_id == _id(second)

    await eventually(written)


async def test_agent_stays_where_the_other_auth_drains(plane: Plane) -> None:
    """It says why, and its heartbeats go on as before."""
    first, proxy, later = await plane.auth("auth-1"), await plane.proxy(), _port()
    agent, group = await _agent(plane, [first.instance.grpc_address, later], proxy)
    second = await plane.auth("auth-2", listen=addresses.parse(later))
    second.instance.declared_status.drain("full")
    advice = _advice(_id(first))
    _answer(proxy, advice)
    await eventually(lambda: _answer(proxy, advice).staying == 1)
    (reason,) = _answer(proxy, advice).staying_reasons.values()
    assert f"auth {_id(second)} is draining and takes no new connections" in reason
    assert agent.auth_id == agent.heartbeats.auth_id == _id(first)
    assert _moves(group, "stays") == 1.0


@pytest.mark.slow
async def test_agent_stays_where_the_other_auth_is_sick(plane: Plane) -> None:
    """It has no backend and takes no heartbeat."""
    link, url = await plane.backend_forward()
    first, proxy, later = await plane.auth("auth-1"), await plane.proxy(), _port()
    await _agent(plane, [first.instance.grpc_address, later], proxy)
    await plane.auth("auth-2", backend=url, listen=addresses.parse(later))
    await link.change(mode=ForwardMode.CUT)
    advice = _advice(_id(first))
    _answer(proxy, advice)
    await eventually(lambda: _answer(proxy, advice).staying == 1)
    (reason,) = _answer(proxy, advice).staying_reasons.values()
    assert "did not accept a heartbeat" in reason
    entry = await _entry(first)
    assert entry is not None
    assert entry.auth_id == _id(first)


@pytest.mark.slow
async def test_agent_that_reaches_auths_through_proxies_leaves_a_sick_one(plane: Plane) -> None:
    """The proxy leads a new connection to an auth that is ready; with pick_first the agent would stay."""
    link, url = await plane.backend_forward()
    sick, proxy = await plane.auth("sick", backend=url, ttl=1.0), await plane.proxy()
    agent, _ = await _agent(plane, [sick.instance.grpc_address], proxy, announce_ttl=1.0, auth_via_proxy=True)
    assert agent.auth_id == _id(sick)
    healthy = await plane.auth("healthy", listen=addresses.parse(_port()))
    await link.change(mode=ForwardMode.CUT)

    async def expired() -> bool:
        return await _entry(healthy) is None

    await eventually(expired)
    # A proxy that has not noticed yet may lead back: then the agent says so, and is asked again.
    numbers = iter(range(1000))

    def moved() -> bool:
        _answer(proxy, _advice(_id(sick), f"advice-{next(numbers)}"))
        return agent.heartbeats.last_auth_id == _id(healthy)

    await eventually(moved)


async def test_agent_of_another_auth_has_nothing_to_do(plane: Plane) -> None:
    """It answers that it is elsewhere, and keeps its connection."""
    auth, proxy = await plane.auth("auth-1"), await plane.proxy()
    agent, group = await _agent(plane, [auth.instance.grpc_address], proxy)
    channel, advice = agent.heartbeats.channel, _advice("another")
    _answer(proxy, advice)
    await eventually(lambda: _answer(proxy, advice).elsewhere == 1)
    assert agent.heartbeats.channel is channel
    assert _moves(group, "elsewhere") == 1.0


async def test_advice_during_a_move_is_answered_with_it(plane: Plane) -> None:
    """Two proxies may ask at once: the agent moves once, and each hears of it by its own id."""
    first, proxy, later = await plane.auth("auth-1"), await plane.proxy(), _port()
    agent, group = await _agent(plane, [first.instance.grpc_address, later], proxy)
    await plane.auth("auth-2", listen=addresses.parse(later))
    replies: list[fleet_pb2.AuthAdvisoryReply] = []

    async def reply(answer: fleet_pb2.AuthAdvisoryReply) -> None:
        replies.append(answer)

    for advisory_id in ("x", "y"):
        agent.auth_moves.advise(_advice(_id(first), advisory_id), reply)
    await eventually(lambda: len(replies) == 2)
    assert [answer.advisory_id for answer in replies] == ["x", "y"]
    assert {answer.outcome for answer in replies} == {fleet_pb2.AuthAdvisoryReply.OUTCOME_MOVED}
    assert _moves(group, "moved") == 1.0


async def test_drained_auth_sends_its_agents_elsewhere(plane: Plane) -> None:
    """With the answers to heartbeats; when the other one drains as well they stay, and do not go to and fro."""
    first, proxy, later = await plane.auth("auth-1"), await plane.proxy(), _port()
    agent, group = await _agent(plane, [first.instance.grpc_address, later], proxy, announce_ttl=1.0)
    second = await plane.auth("auth-2", listen=addresses.parse(later))
    assert agent.auth_id == _id(first)
    first.instance.declared_status.drain("kernel update")
    await eventually(lambda: agent.auth_id == _id(second))
    assert _moves(group, "moved") == 1.0
    second.instance.declared_status.drain("kernel update")
    stays = _moves(group, "stays")
    await eventually(lambda: _moves(group, "stays") >= stays + 2.0)
    assert agent.auth_id == _id(second)
    assert _moves(group, "moved") == 1.0
