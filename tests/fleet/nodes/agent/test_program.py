"""Groups of agents with real auths and proxies."""

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
from fleet.processes.valkey import find_free_port
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


async def list_agent_entries(auth: Auth) -> dict[str, fleet_pb2.AgentEntry]:
    page: AgentPage = await auth.instance.backend.list_agents("", 0, 0)
    return {entry.agent.name: entry for entry in page.agents}


def connected_proxy_ids(agent: Agent) -> set[str]:
    return set(agent.tunnels.proxy_ids)


def instance_ids(*proxies: Proxy) -> set[str]:
    return {proxy.instance.flags.id for proxy in proxies}


def grpc_addresses(*nodes: Proxy | Auth) -> list[str]:
    return [node.instance.grpc_address for node in nodes]


async def test_agents_report_their_labels_and_versions(plane: Plane) -> None:
    """They take the values of a repeated label in turn, by their numbers."""
    auth, proxy = await plane.auth(), await plane.proxy()
    await plane.agents(
        *(auth.instance.grpc_address, [proxy.instance.grpc_address]),
        count=2,
        labels=(("env", "prod"), ("env", "dev")),
        reported_versions=("1.0", "2.0"),
    )

    async def are_registered() -> bool:
        return len(await list_agent_entries(auth)) == 2

    await eventually(are_registered)
    entries = await list_agent_entries(auth)
    assert {name: (entry.agent.version, dict(entry.agent.labels)) for name, entry in entries.items()} == {
        "agent-1": ("2.0", {"env": "dev"}),
        "agent-2": ("1.0", {"env": "prod"}),
    }


async def test_heartbeat_of_lost_connection_is_retried_at_once(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    """The interceptor retries it before the next heartbeat is due, and no failure is logged."""
    agent_names: list[str] = []

    async def heartbeat(
        request: fleet_pb2.HeartbeatRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> fleet_pb2.HeartbeatResponse:
        agent_names.append(request.agent.name)
        if agent_names.count(request.agent.name) == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "shutting down")
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
        await plane.agents(
            f"127.0.0.1:{port}", [f"127.0.0.1:{find_free_port()}"], count=2, announce_ttl=600.0
        )
        await eventually(lambda: sorted(agent_names) == ["agent-1", "agent-1", "agent-2", "agent-2"])
        assert "heartbeat.failed" not in caplog.text
    finally:
        await server.stop(None)


async def test_agents_connect_and_send_heartbeats(plane: Plane) -> None:
    """Each agent has its own id, one tunnel, and an entry with its running settings."""
    auth, proxy, other_proxy = (
        await plane.auth(ttl=600.0),
        await plane.proxy(ttl=60.0),
        await plane.proxy("p2", ttl=60.0),
    )
    group = await plane.agents(
        grpc_addresses(auth)[0], grpc_addresses(proxy, other_proxy), count=5, announce_ttl=4.0
    )
    await eventually(lambda: all(len(connected_proxy_ids(agent)) == 1 for agent in group.agents))

    entries: dict[str, fleet_pb2.AgentEntry] = {}

    async def has_all_claims() -> bool:
        nonlocal entries
        entries = await list_agent_entries(auth)
        return len(entries) == 5 and all(
            set(entries[agent.identity.name].agent.tracker.claimed) == connected_proxy_ids(agent)
            and entries[agent.identity.name].agent.tracker.tracked == 2
            for agent in group.agents
        )

    await eventually(has_all_claims)
    entry = entries["agent-1"]
    assert entry.agent.agent_id == flags.host_id("default", "agent", "agent-1")
    assert entry.auth_id == auth.instance.flags.id
    assert entry.agent.ttl_ms == 4_000
    assert (entry.agent.policy.mode, entry.agent.policy.health_check) == ("pick_first", False)
    assert entry.agent.policy.auth_id == auth.instance.flags.id
    tracker = entry.agent.tracker
    assert (tracker.desired_count, tracker.tracked, tracker.ttl_seen_ms) == (1, 2, 60_000)
    assert len(proxy.table) + len(other_proxy.table) == 5


async def test_mesh_agent_connects_to_all_proxies_and_other_agent_to_its_count(plane: Plane) -> None:
    """The mesh agent also connects to a proxy that starts later; the other agent keeps two tunnels."""
    auth = await plane.auth(ttl=600.0)
    first = [await plane.proxy(f"proxy-{number}", ttl=60.0) for number in range(2)]
    late_address = addresses.join("127.0.0.1", find_free_port())
    proxy_addresses = [*grpc_addresses(*first), late_address]
    mesh = await plane.agents(grpc_addresses(auth)[0], proxy_addresses, connections=0)
    counted_group = await plane.agents(
        grpc_addresses(auth)[0], proxy_addresses, connections=2, name_prefix="counted"
    )
    await eventually(
        lambda: (
            connected_proxy_ids(mesh.agents[0])
            == connected_proxy_ids(counted_group.agents[0])
            == instance_ids(*first)
        )
    )
    late_proxy = await plane.proxy("late", ttl=60.0, listen=addresses.parse(late_address))
    await eventually(lambda: connected_proxy_ids(mesh.agents[0]) == instance_ids(*first, late_proxy))
    assert connected_proxy_ids(counted_group.agents[0]) == instance_ids(*first)


async def test_mesh_agent_skips_draining_proxy_until_drain_ends(plane: Plane) -> None:
    """A connected agent keeps its tunnel to the draining proxy; a new agent connects to it after the drain."""
    auth = await plane.auth(ttl=600.0)
    other_proxy, draining_proxy = await plane.proxy("stays", ttl=10.0), await plane.proxy("drained", ttl=10.0)
    proxy_addresses = grpc_addresses(other_proxy, draining_proxy)
    (old,) = (await plane.agents(grpc_addresses(auth)[0], proxy_addresses, connections=0)).agents
    await eventually(lambda: connected_proxy_ids(old) == instance_ids(other_proxy, draining_proxy))
    draining_proxy.instance.declared_status.drain("kernel update")
    (new,) = (
        await plane.agents(grpc_addresses(auth)[0], proxy_addresses, connections=0, name_prefix="new")
    ).agents
    await eventually(
        lambda: (
            len(new.snapshot().tracked_proxies) == 2 and connected_proxy_ids(new) == instance_ids(other_proxy)
        )
    )
    await eventually(lambda: new.snapshot().desired_tunnel_count == 1)
    assert connected_proxy_ids(old) == instance_ids(other_proxy, draining_proxy)
    assert old.snapshot().desired_tunnel_count == 2
    draining_proxy.instance.declared_status.undrain()
    await eventually(lambda: connected_proxy_ids(new) == instance_ids(other_proxy, draining_proxy))


async def test_agent_leaves_frozen_proxy_after_its_ttl(plane: Plane) -> None:
    """The proxy sends nothing any more: its TTL expires, and the agent connects to another proxy."""
    auth, frozen_proxy = await plane.auth(ttl=600.0), await plane.proxy("frozen", ttl=1.0)
    forward = await plane.forward(frozen_proxy.instance.grpc_address)
    other_link = await plane.forward("127.0.0.1:1")
    await other_link.change(mode=ForwardMode.CUT)
    proxy_addresses = [addresses.join(*forward.listen), addresses.join(*other_link.listen)]
    group = await plane.agents(
        grpc_addresses(auth)[0], proxy_addresses, keep_alive=KeepAlive(interval=0.5, count_max=3)
    )
    (agent,) = group.agents
    await eventually(lambda: connected_proxy_ids(agent) == instance_ids(frozen_proxy))
    await forward.change(mode=ForwardMode.HOLD)
    other_proxy = await plane.proxy("other", ttl=1.0)
    await other_link.change(
        mode=ForwardMode.PASS, target_address=addresses.parse(other_proxy.instance.grpc_address)
    )
    await eventually(lambda: connected_proxy_ids(agent) >= instance_ids(other_proxy))
    # The agent also detects that the old tunnel is dead.
    await eventually(lambda: connected_proxy_ids(agent) == instance_ids(other_proxy))
    await forward.change(mode=ForwardMode.PASS)


async def test_agent_connects_elsewhere_before_stopped_proxy_ends(plane: Plane) -> None:
    """The advised agent connects to the other proxy before it loses the old tunnel (make before break)."""
    auth, old = await plane.auth(ttl=600.0), await plane.proxy("old", ttl=60.0)
    other_address = addresses.join("127.0.0.1", find_free_port())
    group = await plane.agents(grpc_addresses(auth)[0], [old.instance.grpc_address, other_address])
    (agent,) = group.agents
    await eventually(lambda: connected_proxy_ids(agent) == instance_ids(old))
    other_proxy = await plane.proxy("other", ttl=60.0, listen=addresses.parse(other_address))
    proxy_id_sets: list[set[str]] = []
    stop_task = asyncio.create_task(plane.stop(old))

    def has_moved() -> bool:
        proxy_id_sets.append(connected_proxy_ids(agent))
        return connected_proxy_ids(agent) == instance_ids(other_proxy)

    await eventually(has_moved)
    await stop_task
    if (
        set() in proxy_id_sets
    ):  # only if every random dial during the drain time reached the proxy that refuses
        assert proxy_id_sets.count(set()) < len(proxy_id_sets)


@pytest.mark.parametrize("via_proxy", [False, True], ids=["direct", "proxy"])
async def test_heartbeats_move_to_other_auth_when_auth_stops(plane: Plane, via_proxy: bool) -> None:
    """With pick_first the agent connects to the other auth and reads its policy from it."""
    first, second = await plane.auth("auth-1", ttl=600.0), await plane.auth("auth-2", ttl=600.0)
    proxy = await plane.proxy(ttl=600.0)
    group = AgentGroup(
        AgentFlags(
            auth=tuple(addresses.parse(address) for address in grpc_addresses(first, second)),
            proxy=(addresses.parse(proxy.instance.grpc_address),),
            announce_ttl=2.0,
            auth_via_proxy=via_proxy,
        )
    )
    group.start()
    (agent,) = group.agents
    await eventually(lambda: bool(agent.auth_id))
    if agent.auth_id == second.instance.flags.id:  # through a proxy, the proxy chooses the auth
        first, second = second, first
    await plane.stop(first)
    await eventually(lambda: agent.auth_id == second.instance.flags.id)

    async def has_new_policy() -> bool:
        entry = (await list_agent_entries(second)).get("agent-1")
        return entry is not None and entry.agent.policy.auth_id == second.instance.flags.id

    await eventually(has_new_policy)
    await group.stop()


@pytest.mark.parametrize("via_proxy", [False, True], ids=["direct", "proxy"])
async def test_pick_first_agents_stay_with_auth_without_backend(plane: Plane, via_proxy: bool) -> None:
    """The agents could connect to the other auth, but the connection to the unhealthy auth stays open.

    Their heartbeats fail and they expire; heartbeats succeed again when the backend is back.
    """
    forward, url = await plane.backend_forward()
    unhealthy, proxy = await plane.auth("sick", backend=url, ttl=1.0), await plane.proxy(ttl=600.0)
    healthy_address = addresses.join("127.0.0.1", find_free_port())
    group = AgentGroup(
        AgentFlags(
            auth=tuple(addresses.parse(address) for address in (*grpc_addresses(unhealthy), healthy_address)),
            proxy=(addresses.parse(proxy.instance.grpc_address),),
            announce_ttl=1.0,
            count=5,
            auth_via_proxy=via_proxy,
        )
    )
    group.start()
    plane.adopt(group)

    def have_all_stayed() -> bool:
        return all(agent.auth_id == unhealthy.instance.flags.id for agent in group.agents)

    await eventually(have_all_stayed)
    # Started only now, because proxies choose among the running auths.
    healthy = await plane.auth("healthy", ttl=600.0, listen=addresses.parse(healthy_address))
    await forward.change(mode=ForwardMode.CUT)

    async def has_no_entries() -> bool:
        return not await list_agent_entries(healthy)

    await eventually(has_no_entries)
    assert have_all_stayed()
    await forward.change(mode=ForwardMode.PASS)

    async def has_all_entries() -> bool:
        return len(await list_agent_entries(healthy)) == 5

    await eventually(has_all_entries)
    assert have_all_stayed()


async def test_reported_policy_is_the_running_policy(plane: Plane) -> None:
    """The agent reports the mode reconnect and that it watches health."""
    auth = await plane.auth(ttl=600.0, config=ServiceConfig(PolicyMode.RECONNECT, ""))
    proxy = await plane.proxy(ttl=600.0)
    await plane.agents(grpc_addresses(auth)[0], grpc_addresses(proxy))

    async def has_reported_policy() -> bool:
        entry = (await list_agent_entries(auth)).get("agent-1")
        policy = None if entry is None else entry.agent.policy
        return policy is not None and (policy.mode, policy.health_check) == ("reconnect", True)

    await eventually(has_reported_policy)


@pytest.mark.parametrize("via_proxy", [False, True], ids=["direct", "proxy"])
async def test_reconnect_agents_leave_auth_without_backend(plane: Plane, via_proxy: bool) -> None:
    """In reconnect mode agents connect to the healthy auth without advice, and stay listed."""
    config = ServiceConfig(PolicyMode.RECONNECT, "")
    forward, url = await plane.backend_forward()
    unhealthy = await plane.auth("sick", backend=url, config=config, ttl=1.0)
    proxy = await plane.proxy(ttl=600.0)
    healthy_address = addresses.join("127.0.0.1", find_free_port())
    group = AgentGroup(
        AgentFlags(
            auth=tuple(addresses.parse(address) for address in (*grpc_addresses(unhealthy), healthy_address)),
            proxy=(addresses.parse(proxy.instance.grpc_address),),
            announce_ttl=3.0,
            count=5,
            auth_via_proxy=via_proxy,
            balancer_settings=pick_healthy.BalancerSettings(first_wait=0.05, base=0.1, ceiling=0.2),
        )
    )
    group.start()
    plane.adopt(group)
    await eventually(lambda: all(agent.auth_id == unhealthy.instance.flags.id for agent in group.agents))
    healthy = await plane.auth("healthy", config=config, ttl=600.0, listen=addresses.parse(healthy_address))
    await forward.change(mode=ForwardMode.CUT)
    await eventually(lambda: all(agent.auth_id == healthy.instance.flags.id for agent in group.agents))
    auth_labels = {"auth": healthy.instance.flags.id, "mode": "reconnect"}
    assert group.registry.get_sample_value("refloat_agent_auths", auth_labels) == 5.0
    outcome_labels = {"outcome": "moved"}
    assert group.registry.get_sample_value("refloat_agent_auth_failovers_total", outcome_labels) == 5.0

    async def has_all_entries() -> bool:
        return len(await list_agent_entries(healthy)) == 5

    await eventually(has_all_entries)


async def test_stopped_agents_are_deregistered(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that stop in order leave no entries and no tunnels."""
    monkeypatch.setattr(auth_connection, "_DEREGISTER_TIMEOUT", 60.0)
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=600.0)
    group = await plane.agents(grpc_addresses(auth)[0], grpc_addresses(proxy), count=3)

    await eventually(lambda: len(proxy.table) == 3 and all(agent.auth_id for agent in group.agents))
    await plane.stop(group)
    assert await list_agent_entries(auth) == {}
    await eventually(lambda: len(proxy.table) == 0)


async def test_agent_restarts_after_internal_error(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    """A task that fails with a bug is logged with its traceback, and the agent connects again."""
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=600.0)
    group = await plane.agents(
        grpc_addresses(auth)[0], grpc_addresses(proxy), keep_alive=KeepAlive(interval=0.5)
    )
    (agent,) = group.agents
    await eventually(lambda: len(connected_proxy_ids(agent)) == 1)

    async def raise_error() -> None:
        raise ZeroDivisionError

    agent._tasks.append(asyncio.create_task(raise_error()))
    await eventually(lambda: "failed with an internal error" in caplog.text)
    await eventually(lambda: len(connected_proxy_ids(agent)) == 1)
    assert "ZeroDivisionError" in caplog.text


async def test_agent_needs_certificate_with_mutual_tls(plane: Plane, tmp_path: Path) -> None:
    """With certificates on every port an agent connects and sends heartbeats; an agent without a certificate cannot."""
    certificates = Certificates(tmp_path)
    tls = certificates.of("agents-1", "agent", "refloat:agents:agent-1..1")
    auth = await plane.auth(ttl=600.0, tls=certificates.of("auth-1", "auth"))
    proxy = await plane.proxy(ttl=600.0, tls=certificates.of("proxy-1", "proxy"))
    group_without_certificate = await plane.agents(
        grpc_addresses(auth)[0],
        grpc_addresses(proxy),
        name_prefix="stranger",
        tls=TLSFiles(authority=tls.authority),
    )
    group = await plane.agents(grpc_addresses(auth)[0], grpc_addresses(proxy), tls=tls)
    await eventually(
        lambda: bool(group.agents[0].auth_id) and connected_proxy_ids(group.agents[0]) == instance_ids(proxy)
    )
    assert set(await list_agent_entries(auth)) == {"agent-1"}
    assert connected_proxy_ids(group_without_certificate.agents[0]) == set()


async def test_agent_with_certificate_of_another_agent_is_refused(
    plane: Plane, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate is valid for the agents that it names only; the agent and the proxy log the refusal once."""
    certificates = Certificates(tmp_path)
    tls = certificates.of("agent-1", "agent")
    auth = await plane.auth(ttl=600.0, tls=certificates.of("auth-1", "auth"))
    proxy = await plane.proxy(ttl=600.0, tls=certificates.of("proxy-1", "proxy"))
    group = await plane.agents(grpc_addresses(auth)[0], grpc_addresses(proxy), count=2, tls=tls)
    named_agent, unnamed_agent = group.agents

    async def has_heartbeat_of_own() -> bool:
        return "agent-1" in await list_agent_entries(auth)

    await eventually(lambda: connected_proxy_ids(named_agent) == instance_ids(proxy))
    await eventually(lambda: "agent-2: cannot open a tunnel: the certificate is for" in caplog.text)
    assert caplog.text.count("tunnel.refused: agent 'agent-2' at") == 1
    await eventually(lambda: "heartbeat.failed: agent-2: PERMISSION_DENIED" in caplog.text)
    assert connected_proxy_ids(unnamed_agent) == set()
    await eventually(has_heartbeat_of_own)
    assert "agent-2" not in await list_agent_entries(auth)


def test_agent_id_depends_on_cluster_role_and_name() -> None:
    """The id is the same after a restart and differs in another cluster."""
    assert flags.host_id("default", "agent", "agent-1") == flags.host_id("default", "agent", "agent-1")
    assert (
        len({flags.host_id(*key.split("/")) for key in ("a/agent/x", "b/agent/x", "a/proxy/x", "a/agent/y")})
        == 4
    )


async def test_several_auth_host_names_are_refused() -> None:
    """Several auths must be given by IP address."""
    with pytest.raises(lifecycle.NodeStartError, match="several addresses"):
        AgentGroup(AgentFlags(auth=(("a", 1), ("b", 2)), proxy=(("c", 3),)))


def test_agent_program_does_not_load_heavy_libraries() -> None:
    """The agent process stays small: no HTTP server, no certificate creation, no backend client."""
    heavy_modules = ("aiohttp", "cryptography", "redis", "h11")
    code = f"import sys, fleet.nodes.agent.program; print(*[name for name in {heavy_modules} if name in sys.modules])"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert process.stdout.split() == []


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
def test_balancer_flags_become_balancer_settings(
    monkeypatch: pytest.MonkeyPatch, args: list[str], settings: pick_healthy.BalancerSettings
) -> None:
    """The channel to auths runs with the given flags, and with defaults for the others."""
    served_flags: list[AgentFlags] = []

    async def serve(flags: AgentFlags, diag_listen: tuple[str, int] | None = None) -> None:
        del diag_listen
        served_flags.append(flags)

    monkeypatch.setattr(agent_module, "serve", serve)
    monkeypatch.setattr(lifecycle, "run", lambda work: work())
    invocation = CliRunner().invoke(agent_module.command, ["--auth", "a:1", "--proxy", "b:2", *args])
    assert (invocation.exit_code, invocation.output) == (0, "")
    assert [flags.balancer_settings for flags in served_flags] == [settings]
