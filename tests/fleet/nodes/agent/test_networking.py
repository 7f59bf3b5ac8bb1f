"""Agents receive, check and apply the networking config."""

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


class NetworkingRecorder:
    """Record the settings that an agent's networking applies and the config requests that it sends."""

    def __init__(self, overrides: Overrides | None = None) -> None:
        self.settings: list[TunnelSettings] = []
        self.request_count = 0
        self.registry = CollectorRegistry()
        metrics = AgentMetrics(self.registry)
        self.networking = AgentNetworking(
            "agent-1", overrides or Overrides(), metrics, self.settings.append, self._count_request
        )

    def _count_request(self) -> None:
        self.request_count += 1


def networking_config_message(revision: str, **spec: Any) -> types_pb2.ClusterNetworkingConfigV2:
    message = types_pb2.ClusterNetworkingConfigV2()
    networking_config.finalize(message, Origin.DYNAMIC, revision)
    for key, value in spec.items():
        setattr(message.spec, key, value)
    return message


def test_config_with_the_same_settings_is_applied_once() -> None:
    """A new revision with the same values does not change the settings again."""
    recorder = NetworkingRecorder()
    recorder.networking.apply(networking_config_message("1", keep_alive_interval=2_000_000_000), "auth-1")
    recorder.networking.apply(networking_config_message("2", keep_alive_interval=2_000_000_000), "auth-1")
    assert [settings.keep_alive for settings in recorder.settings] == [KeepAlive(2.0, 3)]
    assert recorder.networking.revision == "2"


def test_malformed_config_is_refused_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The agent keeps its config, counts every refusal, and logs one line per source."""
    recorder = NetworkingRecorder()
    recorder.networking.apply(networking_config_message("good"), "auth-1")
    with caplog.at_level(logging.WARNING):
        for revision in ("bad", "worse"):
            recorder.networking.apply(networking_config_message(revision, keep_alive_interval=-5), "auth-1")
    assert recorder.networking.revision == "good"
    assert caplog.text.count("networking-config.refused") == 1
    text = generate_latest(recorder.registry).decode()
    assert 'refloat_agent_refused_inputs_total{kind="networking-config"} 2.0' in text


async def test_revision_hint_triggers_config_request() -> None:
    """Only a hint of another revision triggers a request, within the spread."""
    recorder = NetworkingRecorder()
    recorder.networking.apply(networking_config_message("1"), "auth-1")
    recorder.networking.on_config_notice("1", 0.0)
    recorder.networking.on_config_notice("", 0.0)
    recorder.networking.on_config_notice("2", 0.01)
    await eventually(lambda: recorder.request_count == 1)


async def update_config(auth: Auth, **spec: Any) -> str:
    """Change the stored networking config, as an operator does."""
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        message = await stub.GetClusterNetworkingConfig(clusterconfig_pb2.GetClusterNetworkingConfigRequest())
        peering = spec.pop("agent_connection_count", None)
        if peering:
            message.spec.tunnel_strategy.proxy_peering.agent_connection_count = peering
        for key, value in spec.items():
            setattr(message.spec, key, value)
        request = clusterconfig_pb2.UpdateClusterNetworkingConfigRequest(cluster_network_config=message)
        stored_config = await stub.UpdateClusterNetworkingConfig(request)
    return str(stored_config.metadata.revision)


async def test_config_change_reaches_running_agents(plane: Plane) -> None:
    """The proxy hints at the change long before the next heartbeat, and the agent fetches it. Flags take precedence."""
    auth = await plane.auth(ttl=600.0)
    proxies: list[Proxy] = [await plane.proxy(f"proxy-{number}", ttl=60.0) for number in range(3)]
    proxy_addresses = [proxy.instance.grpc_address for proxy in proxies]
    auth_address = auth.instance.grpc_address
    (agent_with_config,) = (
        await plane.agents(auth_address, proxy_addresses, connections=None, announce_ttl=600.0)
    ).agents
    (agent_with_flags,) = (
        await plane.agents(auth_address, proxy_addresses, name_prefix="flagged", announce_ttl=600.0)
    ).agents
    # No settings are stored: the default config is agent mesh.
    await eventually(
        lambda: len(agent_with_config.tunnels.proxy_ids) == 3 and len(agent_with_flags.tunnels.proxy_ids) == 1
    )
    revision = await update_config(
        auth,
        agent_connection_count=2,
        keep_alive_interval=1_000_000_000,
        graceful_tunnel_closing=True,
        tunnel_closing_wait_min=1_000_000_000,
        tunnel_closing_wait_max=1_000_000_000,
    )
    await eventually(
        lambda: agent_with_config.networking.revision == agent_with_flags.networking.revision == revision
    )
    assert agent_with_config.tunnels.keep_alive == agent_with_flags.tunnels.keep_alive == KeepAlive(1.0, 3)
    assert (agent_with_config.snapshot().connection_count, agent_with_flags.snapshot().connection_count) == (
        2,
        1,
    )
    await eventually(lambda: all(proxy.table.keep_alive == KeepAlive(1.0, 3) for proxy in proxies))
    # The excess tunnel is closed after 1 s of waiting, and no other.
    await eventually(lambda: len(agent_with_config.tunnels.proxy_ids) == 2)

    async def has_reported_revision() -> bool:
        entries = (await auth.instance.backend.list_agents("", 0, 0)).agents
        return {entry.agent.networking_revision for entry in entries} == {revision}

    await eventually(has_reported_revision)
