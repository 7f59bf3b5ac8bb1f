"""Groups of agents against real auths and proxies."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from click.testing import CliRunner

from fleet.nodes.agent import auth_connection
from fleet.nodes.agent import program as agent_module
from fleet.nodes.agent.program import Agent, AgentFlags, AgentGroup
from fleet.nodes.auth.server import Auth
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.proxy.server import Proxy
from fleet.nodes.shared import addresses, flags, lifecycle
from fleet.processes.valkey import free_port
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery import pick_healthy
from fleet.protocol.recovery.service_config import PickHealthyMode as PolicyMode
from fleet.protocol.recovery.service_config import ServiceConfig
from fleet.transport import channels
from fleet.transport.backend import AgentPage
from fleet.transport.tls import TLSFiles
from fleet.wire import fleet_pb2
from tests.fakes.certificates import Certificates
from tests.fakes.plane import Plane
from tests.fakes.waiting import eventually
from tests.meta.house import ROOT


async def resources(auth: Auth) -> dict[str, fleet_pb2.AgentEntry]:
    page: AgentPage = await auth.instance.backend.agents("", 0, 0)
    return {entry.agent.name: entry for entry in page.agents}


def proxies_of(agent: Agent) -> set[str]:
    return set(agent.tunnels.proxies)


def ids(*proxies: Proxy) -> set[str]:
    return {proxy.instance.flags.id for proxy in proxies}


def grpc_of(*nodes: Proxy | Auth) -> list[str]:
    return [node.instance.grpc_address for node in nodes]


async def test_heartbeat_lost_with_a_connection_is_made_again(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, by the interceptor: nobody waits for the next one, and nothing is logged as failed."""
    said: list[str] = []

    async def heartbeat(
        request: fleet_pb2.HeartbeatRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> fleet_pb2.HeartbeatResponse:
        said.append(request.agent.name)
        if said.count(request.agent.name) == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "it is about to end")
        return fleet_pb2.HeartbeatResponse()

    server = grpc.aio.server(options=channels.server_options())
    handlers = {
        "Heartbeat": grpc.unary_unary_rpc_method_handler(
            heartbeat,
            request_deserializer=fleet_pb2.HeartbeatRequest.FromString,
            response_serializer=fleet_pb2.HeartbeatResponse.SerializeToString,
        )
    }
    service = grpc.method_handlers_generic_handler("fleet.v1.HeartbeatService", handlers)
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        await plane.agents(f"127.0.0.1:{port}", [f"127.0.0.1:{free_port()}"], count=2, announce_ttl=600.0)
        await eventually(lambda: sorted(said) == ["agent-1", "agent-1", "agent-2", "agent-2"])
        assert "heartbeat.failed" not in caplog.text
    finally:
        await server.stop(None)


async def test_agents_tunnel_and_heartbeat(plane: Plane) -> None:
    """Each has an id of its own, one tunnel, and a resource that says what it runs with."""
    auth, proxy, other = (
        await plane.auth(ttl=600.0),
        await plane.proxy(ttl=60.0),
        await plane.proxy("p2", ttl=60.0),
    )
    group = await plane.agents(grpc_of(auth)[0], grpc_of(proxy, other), count=5, announce_ttl=4.0)
    await eventually(lambda: all(len(proxies_of(agent)) == 1 for agent in group.agents))

    found: dict[str, fleet_pb2.AgentEntry] = {}

    async def told() -> bool:
        nonlocal found
        found = await resources(auth)
        return len(found) == 5 and all(
            set(found[agent.identity.name].agent.tracker.claimed) == proxies_of(agent)
            and found[agent.identity.name].agent.tracker.tracked == 2
            for agent in group.agents
        )

    await eventually(told)
    entry = found["agent-1"]
    assert entry.agent.agent_id == flags.host_id("default", "agent", "agent-1")
    assert entry.auth_id == auth.instance.flags.id
    assert entry.agent.ttl_ms == 4_000
    assert (entry.agent.policy.mode, entry.agent.policy.health_check) == ("pick_first", False)
    assert entry.agent.policy.auth_id == auth.instance.flags.id
    tracker = entry.agent.tracker
    assert (tracker.desired_count, tracker.tracked, tracker.ttl_seen_ms) == (1, 2, 60_000)
    assert len(proxy.table) + len(other.table) == 5


async def test_mesh_and_count(plane: Plane) -> None:
    """A mesh agent holds a tunnel to every proxy, also to one that comes later; a counted one as many as it wants."""
    auth = await plane.auth(ttl=600.0)
    first = [await plane.proxy(f"proxy-{number}", ttl=60.0) for number in range(2)]
    late_address = addresses.join("127.0.0.1", free_port())
    where = [*grpc_of(*first), late_address]
    mesh = await plane.agents(grpc_of(auth)[0], where, connections=0)
    counted = await plane.agents(grpc_of(auth)[0], where, connections=2, name_prefix="counted")
    await eventually(lambda: proxies_of(mesh.agents[0]) == proxies_of(counted.agents[0]) == ids(*first))
    late = await plane.proxy("late", ttl=60.0, listen=addresses.parse(late_address))
    await eventually(lambda: proxies_of(mesh.agents[0]) == ids(*first, late))
    assert proxies_of(counted.agents[0]) == ids(*first)


async def test_mesh_and_a_proxy_that_drains(plane: Plane) -> None:
    """The mesh that stands keeps its tunnel there; a new one is complete without it, and dials when it is over."""
    auth = await plane.auth(ttl=600.0)
    stays, drained = await plane.proxy("stays", ttl=10.0), await plane.proxy("drained", ttl=10.0)
    where = grpc_of(stays, drained)
    (old,) = (await plane.agents(grpc_of(auth)[0], where, connections=0)).agents
    await eventually(lambda: proxies_of(old) == ids(stays, drained))
    drained.instance.declared_status.drain("kernel update")
    (new,) = (await plane.agents(grpc_of(auth)[0], where, connections=0, name_prefix="new")).agents
    await eventually(lambda: len(new.snapshot().tracked_proxies) == 2 and proxies_of(new) == ids(stays))
    await eventually(lambda: new.snapshot().desired_tunnel_count == 1)
    assert proxies_of(old) == ids(stays, drained)
    assert old.snapshot().desired_tunnel_count == 2
    drained.instance.declared_status.undrain()
    await eventually(lambda: proxies_of(new) == ids(stays, drained))


async def test_frozen_proxy(plane: Plane) -> None:
    """A proxy from which nothing comes any more: its TTL runs out, and the agent has a tunnel elsewhere."""
    auth, frozen = await plane.auth(ttl=600.0), await plane.proxy("frozen", ttl=1.0)
    link = await plane.forward(frozen.instance.grpc_address)
    other_link = await plane.forward("127.0.0.1:1")
    await other_link.change(mode=ForwardMode.CUT)
    where = [addresses.join(*link.listen), addresses.join(*other_link.listen)]
    group = await plane.agents(grpc_of(auth)[0], where, keep_alive=KeepAlive(interval=0.5, count_max=3))
    (agent,) = group.agents
    await eventually(lambda: proxies_of(agent) == ids(frozen))
    await link.change(mode=ForwardMode.HOLD)
    other = await plane.proxy("other", ttl=1.0)
    await other_link.change(mode=ForwardMode.PASS, to=addresses.parse(other.instance.grpc_address))
    await eventually(lambda: proxies_of(agent) >= ids(other))
    # And the old one is noticed to be dead.
    await eventually(lambda: proxies_of(agent) == ids(other))
    await link.change(mode=ForwardMode.PASS)


async def test_proxy_that_ends(plane: Plane) -> None:
    """Make before break: the advised agent is elsewhere before the old proxy is gone."""
    auth, old = await plane.auth(ttl=600.0), await plane.proxy("old", ttl=60.0)
    other_address = addresses.join("127.0.0.1", free_port())
    group = await plane.agents(grpc_of(auth)[0], [old.instance.grpc_address, other_address])
    (agent,) = group.agents
    await eventually(lambda: proxies_of(agent) == ids(old))
    other = await plane.proxy("other", ttl=60.0, listen=addresses.parse(other_address))
    seen: list[set[str]] = []
    ending = asyncio.create_task(plane.stop(old))

    def moved() -> bool:
        seen.append(proxies_of(agent))
        return proxies_of(agent) == ids(other)

    await eventually(moved)
    await ending
    if set() in seen:  # only if the dice sent every dial to the proxy that refuses, for its whole drain time
        assert seen.count(set()) < len(seen)


@pytest.mark.parametrize("via_proxy", [False, True], ids=["direct", "proxy"])
async def test_auth_that_dies(plane: Plane, via_proxy: bool) -> None:
    """pick_first: the connection died, so heartbeats go to another auth, with the policy read anew there."""
    first, second = await plane.auth("auth-1", ttl=600.0), await plane.auth("auth-2", ttl=600.0)
    proxy = await plane.proxy(ttl=600.0)
    made = AgentGroup(
        AgentFlags(
            auth=tuple(addresses.parse(address) for address in grpc_of(first, second)),
            proxy=(addresses.parse(proxy.instance.grpc_address),),
            announce_ttl=2.0,
            auth_via_proxy=via_proxy,
        )
    )
    made.start()
    (agent,) = made.agents
    await eventually(lambda: bool(agent.auth_id))
    if agent.auth_id == second.instance.flags.id:  # through a proxy it is the proxy who chooses
        first, second = second, first
    await plane.stop(first)
    await eventually(lambda: agent.auth_id == second.instance.flags.id)

    async def told() -> bool:
        entry = (await resources(second)).get("agent-1")
        return entry is not None and entry.agent.policy.auth_id == second.instance.flags.id

    await eventually(told)
    await made.stop()


@pytest.mark.parametrize("via_proxy", [False, True], ids=["direct", "proxy"])
async def test_auth_without_backend(plane: Plane, via_proxy: bool) -> None:
    """pick_first: a sick auth that holds the connection keeps its agents, though they could go to another.

    Their heartbeats fail and they expire; heartbeats succeed again with its backend.
    """
    link, url = await plane.backend_forward()
    sick, proxy = await plane.auth("sick", backend=url, ttl=1.0), await plane.proxy(ttl=600.0)
    healthy_address = addresses.join("127.0.0.1", free_port())
    made = AgentGroup(
        AgentFlags(
            auth=tuple(addresses.parse(address) for address in (*grpc_of(sick), healthy_address)),
            proxy=(addresses.parse(proxy.instance.grpc_address),),
            announce_ttl=1.0,
            count=5,
            auth_via_proxy=via_proxy,
        )
    )
    made.start()
    plane.adopt(made)

    def all_stay() -> bool:
        return all(agent.auth_id == sick.instance.flags.id for agent in made.agents)

    await eventually(all_stay)
    # Only now: proxies choose among those there are.
    healthy = await plane.auth("healthy", ttl=600.0, listen=addresses.parse(healthy_address))
    await link.change(mode=ForwardMode.CUT)

    async def expired() -> bool:
        return not await resources(healthy)

    await eventually(expired)
    assert all_stay()
    await link.change(mode=ForwardMode.PASS)

    async def back() -> bool:
        return len(await resources(healthy)) == 5

    await eventually(back)
    assert all_stay()


async def test_policy_is_reported(plane: Plane) -> None:
    """What an agent reports is what it runs with: reconnect, and that it watches health."""
    auth = await plane.auth(ttl=600.0, config=ServiceConfig(PolicyMode.RECONNECT, ""))
    proxy = await plane.proxy(ttl=600.0)
    await plane.agents(grpc_of(auth)[0], grpc_of(proxy))

    async def told() -> bool:
        entry = (await resources(auth)).get("agent-1")
        policy = None if entry is None else entry.agent.policy
        return policy is not None and (policy.mode, policy.health_check) == ("reconnect", True)

    await eventually(told)


@pytest.mark.parametrize("via_proxy", [False, True], ids=["direct", "proxy"])
async def test_auth_cut_from_its_backend(plane: Plane, via_proxy: bool) -> None:
    """In reconnect mode agents leave it by themselves and stay listed."""
    config = ServiceConfig(PolicyMode.RECONNECT, "")
    link, url = await plane.backend_forward()
    sick = await plane.auth("sick", backend=url, config=config, ttl=1.0)
    proxy = await plane.proxy(ttl=600.0)
    healthy_address = addresses.join("127.0.0.1", free_port())
    made = AgentGroup(
        AgentFlags(
            auth=tuple(addresses.parse(address) for address in (*grpc_of(sick), healthy_address)),
            proxy=(addresses.parse(proxy.instance.grpc_address),),
            announce_ttl=3.0,
            count=5,
            auth_via_proxy=via_proxy,
            balancer=pick_healthy.BalancerSettings(first_wait=0.05, base=0.1, ceiling=0.2),
        )
    )
    made.start()
    plane.adopt(made)
    await eventually(lambda: all(agent.auth_id == sick.instance.flags.id for agent in made.agents))
    healthy = await plane.auth("healthy", config=config, ttl=600.0, listen=addresses.parse(healthy_address))
    await link.change(mode=ForwardMode.CUT)
    await eventually(lambda: all(agent.auth_id == healthy.instance.flags.id for agent in made.agents))
    place = {"auth": healthy.instance.flags.id, "mode": "reconnect"}
    assert made.registry.get_sample_value("refloat_agent_auths", place) == 5.0
    moved = {"outcome": "moved"}
    assert made.registry.get_sample_value("refloat_agent_auth_failovers_total", moved) == 5.0

    async def listed() -> bool:
        return len(await resources(healthy)) == 5

    await eventually(listed)


async def test_orderly_end_deregisters(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that are told to end leave nothing behind."""
    monkeypatch.setattr(auth_connection, "_DEREGISTER_WITHIN", 60.0)
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=600.0)
    group = await plane.agents(grpc_of(auth)[0], grpc_of(proxy), count=3)

    await eventually(lambda: len(proxy.table) == 3 and all(agent.auth_id for agent in group.agents))
    await plane.stop(group)
    assert await resources(auth) == {}
    await eventually(lambda: len(proxy.table) == 0)


async def test_fault_of_ours_is_mended(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    """A task that ends by a bug is logged with its traceback, and the agent begins anew."""
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=600.0)
    group = await plane.agents(grpc_of(auth)[0], grpc_of(proxy), keep_alive=KeepAlive(interval=0.5))
    (agent,) = group.agents
    await eventually(lambda: len(proxies_of(agent)) == 1)

    async def broken() -> None:
        raise ZeroDivisionError

    agent._tasks.append(asyncio.create_task(broken()))
    await eventually(lambda: "failed with an internal error" in caplog.text)
    await eventually(lambda: len(proxies_of(agent)) == 1)
    assert "ZeroDivisionError" in caplog.text


async def test_mutual_tls_everywhere(plane: Plane, tmp_path: Path) -> None:
    """With certificates on every port an agent heartbeats and tunnels; without one of its own it gets nowhere."""
    certificates = Certificates(tmp_path)
    tls = certificates.of("agents-1", "agent", "refloat:agents:agent-1..1")
    auth = await plane.auth(ttl=600.0, tls=certificates.of("auth-1", "auth"))
    proxy = await plane.proxy(ttl=600.0, tls=certificates.of("proxy-1", "proxy"))
    stranger = await plane.agents(
        grpc_of(auth)[0], grpc_of(proxy), name_prefix="stranger", tls=TLSFiles(authority=tls.authority)
    )
    group = await plane.agents(grpc_of(auth)[0], grpc_of(proxy), tls=tls)
    await eventually(lambda: bool(group.agents[0].auth_id) and proxies_of(group.agents[0]) == ids(proxy))
    assert set(await resources(auth)) == {"agent-1"}
    assert proxies_of(stranger.agents[0]) == set()


async def test_certificate_of_another_agent(
    plane: Plane, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate is good for the tunnels and heartbeats of the agents that it names; both ends say so once."""
    certificates = Certificates(tmp_path)
    tls = certificates.of("agent-1", "agent")
    auth = await plane.auth(ttl=600.0, tls=certificates.of("auth-1", "auth"))
    proxy = await plane.proxy(ttl=600.0, tls=certificates.of("proxy-1", "proxy"))
    group = await plane.agents(grpc_of(auth)[0], grpc_of(proxy), count=2, tls=tls)
    own, other = group.agents

    async def has_heartbeat_of_own() -> bool:
        return "agent-1" in await resources(auth)

    await eventually(lambda: proxies_of(own) == ids(proxy))
    await eventually(lambda: "agent-2: cannot open a tunnel: the certificate is for" in caplog.text)
    assert caplog.text.count("tunnel.refused: agent 'agent-2' at") == 1
    await eventually(lambda: "heartbeat.failed: agent-2: PERMISSION_DENIED" in caplog.text)
    assert proxies_of(other) == set()
    await eventually(has_heartbeat_of_own)
    assert "agent-2" not in await resources(auth)


def test_names_and_ids_are_stable() -> None:
    """The id is made from cluster and name: the same after a restart, another in another cluster."""
    assert flags.host_id("default", "agent", "agent-1") == flags.host_id("default", "agent", "agent-1")
    assert (
        len({flags.host_id(*key.split("/")) for key in ("a/agent/x", "b/agent/x", "a/proxy/x", "a/agent/y")})
        == 4
    )


async def test_auth_addresses_of_several_names() -> None:
    """Several auths must be given by IP address."""
    with pytest.raises(lifecycle.NodeStartError, match="several addresses"):
        AgentGroup(AgentFlags(auth=(("a", 1), ("b", 2)), proxy=(("c", 3),)))


def test_agents_load_no_more_than_they_need() -> None:
    """A process of agents is small: no HTTP server, no making of certificates, no backend."""
    heavy = ("aiohttp", "cryptography", "redis", "h11")
    code = f"import sys, fleet.nodes.agent.program; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("args", "settings"),
    [
        ([], pick_healthy.BalancerSettings(first_wait=0.25)),
        (["--reconnect-wait", "0s"], pick_healthy.BalancerSettings(first_wait=0.0)),
        (["--upstream-reconnect-wait"], pick_healthy.BalancerSettings(first_wait=None)),
        (["--auth-drain-timeout", "90s"], pick_healthy.BalancerSettings(first_wait=0.25, drain_timeout=90.0)),
        (
            ["--auth-reconnect-every", "1h"],
            pick_healthy.BalancerSettings(first_wait=0.25, reconnect_every=3600.0),
        ),
    ],
)
def test_flags_of_the_balancer(
    monkeypatch: pytest.MonkeyPatch, args: list[str], settings: pick_healthy.BalancerSettings
) -> None:
    """Each is read into what the channel to auths runs with; unset ones are the defaults."""
    seen: list[AgentFlags] = []

    async def serve(flags: AgentFlags, diag: tuple[str, int] | None = None) -> None:
        del diag
        seen.append(flags)

    monkeypatch.setattr(agent_module, "serve", serve)
    monkeypatch.setattr(lifecycle, "run", lambda work: work())
    result = CliRunner().invoke(agent_module.command, ["--auth", "a:1", "--proxy", "b:2", *args])
    assert (result.exit_code, result.output) == (0, "")
    assert [flags.balancer for flags in seen] == [settings]
