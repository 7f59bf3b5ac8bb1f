"""The networking config in agents: told, checked, followed."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fleet.nodes.agent.metrics import AgentMetrics
from fleet.nodes.agent.networking import AgentNetworking
from fleet.nodes.auth.server import Auth
from fleet.nodes.proxy.server import Proxy
from fleet.protocol.networking.config import Origin
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.tunnel_settings import Overrides, TunnelSettings
from fleet.transport import networking_config
from fleet.wire import clusterconfig_pb2, clusterconfig_pb2_grpc, types_pb2
from tests.fakes.plane import Plane, channel_to
from tests.fakes.waiting import eventually


class Seen:
    """An agent's networking with what it told others."""

    def __init__(self, overrides: Overrides | None = None) -> None:
        self.settings: list[TunnelSettings] = []
        self.asked = 0
        self.registry = CollectorRegistry()
        metrics = AgentMetrics(self.registry)
        self.networking = AgentNetworking(
            "agent-1", overrides or Overrides(), metrics, self.settings.append, self._ask
        )

    def _ask(self) -> None:
        self.asked += 1


def config(revision: str, **spec: Any) -> types_pb2.ClusterNetworkingConfigV2:
    message = types_pb2.ClusterNetworkingConfigV2()
    networking_config.finalize(message, Origin.DYNAMIC, revision)
    for key, value in spec.items():
        setattr(message.spec, key, value)
    return message


def test_config_is_followed_and_told_once() -> None:
    """Settings change with the config, and not for a revision that says the same."""
    seen = Seen()
    seen.networking.apply(config("1", keep_alive_interval=2_000_000_000), "auth-1")
    seen.networking.apply(config("2", keep_alive_interval=2_000_000_000), "auth-1")
    assert [one.keep_alive for one in seen.settings] == [KeepAlive(2.0, 3)]
    assert seen.networking.revision == "2"


def test_malformed_config_is_refused_once(caplog: pytest.LogCaptureFixture) -> None:
    """Out of range: it goes on with what it had, counts each, logs once a source."""
    seen = Seen()
    seen.networking.apply(config("good"), "auth-1")
    with caplog.at_level(logging.WARNING):
        for revision in ("bad", "worse"):
            seen.networking.apply(config(revision, keep_alive_interval=-5), "auth-1")
    assert seen.networking.revision == "good"
    assert caplog.text.count("networking-config.refused") == 1
    text = generate_latest(seen.registry).decode()
    assert 'refloat_agent_refused_total{kind="networking-config"} 2.0' in text


async def test_hint_makes_it_ask() -> None:
    """Only another revision than its own, and within the spread."""
    seen = Seen()
    seen.networking.apply(config("1"), "auth-1")
    seen.networking.on_news("1", 0.0)
    seen.networking.on_news("", 0.0)
    seen.networking.on_news("2", 0.01)
    await eventually(lambda: seen.asked == 1)


async def write(auth: Auth, **spec: Any) -> str:
    """Change the stored config, as an operator does."""
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        message = await stub.GetClusterNetworkingConfig(clusterconfig_pb2.GetClusterNetworkingConfigRequest())
        peering = spec.pop("agent_connection_count", None)
        if peering:
            message.spec.tunnel_strategy.proxy_peering.agent_connection_count = peering
        for key, value in spec.items():
            setattr(message.spec, key, value)
        request = clusterconfig_pb2.UpdateClusterNetworkingConfigRequest(cluster_network_config=message)
        written = await stub.UpdateClusterNetworkingConfig(request)
    return str(written.metadata.revision)


async def test_changes_reach_running_agents(plane: Plane) -> None:
    """Long before the next heartbeat is due: the proxy hints, the agent asks, and does as told. Flags win."""
    auth = await plane.auth(ttl=600.0)
    proxies: list[Proxy] = [await plane.proxy(f"proxy-{number}", ttl=60.0) for number in range(3)]
    where = [proxy.instance.grpc_address for proxy in proxies]
    dial = auth.instance.grpc_address
    (told,) = (await plane.agents(dial, where, connections=None, announce_ttl=600.0)).agents
    (flagged,) = (await plane.agents(dial, where, name_prefix="flagged", announce_ttl=600.0)).agents
    # Nobody said anything: the default config is agent mesh.
    await eventually(lambda: len(told.tunnels.proxies) == 3 and len(flagged.tunnels.proxies) == 1)
    revision = await write(
        auth,
        agent_connection_count=2,
        keep_alive_interval=1_000_000_000,
        graceful_tunnel_closing=True,
        tunnel_closing_wait_min=1_000_000_000,
        tunnel_closing_wait_max=1_000_000_000,
    )
    await eventually(lambda: told.networking.revision == flagged.networking.revision == revision)
    assert told.tunnels.keep_alive == flagged.tunnels.keep_alive == KeepAlive(1.0, 3)
    assert (told.snapshot().connection_count, flagged.snapshot().connection_count) == (2, 1)
    await eventually(lambda: all(proxy.table.keep_alive == KeepAlive(1.0, 3) for proxy in proxies))
    # One too many: closed after its second of waiting, and none more.
    await eventually(lambda: len(told.tunnels.proxies) == 2)

    async def reported() -> bool:
        found = (await auth.instance.backend.agents("", 0, 0)).agents
        return {entry.agent.networking_revision for entry in found} == {revision}

    await eventually(reported)
