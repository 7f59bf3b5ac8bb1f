"""A control plane of real nodes in this process: real gRPC on localhost, a real Valkey, and forwards to cut."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import aiohttp
import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.nodes.agent.program import AgentFlags, AgentGroup
from fleet.nodes.auth.cluster_config import InitialNetworkingConfig
from fleet.nodes.auth.server import Auth
from fleet.nodes.auth.site import DEFAULT_HTTP, HTTPFlags
from fleet.nodes.local.forwards import Forward
from fleet.nodes.proxy.connect.access import ConnectFlags
from fleet.nodes.proxy.heartbeat import HeartbeatFlags
from fleet.nodes.proxy.server import Proxy, ProxyFlags
from fleet.nodes.shared import addresses, flags
from fleet.nodes.shared.instance import Instance, InstanceFlags
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.service_config import ServiceConfig
from fleet.protocol.recovery.tunnel_settings import Overrides

#: Nothing expires under a test that a busy machine holds up; who wants to see heartbeats says a shorter one.
TTL = 600.0
#: Tests that are about something else need no auth for a proxy.
DIRECT = HeartbeatFlags(through_auth=False)


class Plane:
    """Starts nodes and ends them all."""

    def __init__(self, valkey_url: str, prefix: str) -> None:
        self.backend_url = valkey_url
        self.prefix = prefix
        self._nodes: list[Any] = []

    async def forward(self, address: str) -> Forward:
        """Start a forward to host:port that can be cut."""
        new_forward = Forward("x", ("127.0.0.1", 0), addresses.parse(address))
        await new_forward.start()
        self._nodes.append(new_forward)
        return new_forward

    async def backend_forward(self) -> tuple[Forward, str]:
        """A forward to the backend, and its URL."""
        url = urlsplit(self.backend_url)
        new_forward = await self.forward(url.netloc.rpartition("@")[2])
        return new_forward, f"redis://:{url.password}@{addresses.join(*new_forward.listen)}/0"

    def instance_flags(self, kind: str, name: str, ttl: float = TTL, **more: Any) -> InstanceFlags:
        """Flags of an instance on any port."""
        more.setdefault("backend", self.backend_url)
        return InstanceFlags(
            name=name,
            id=flags.host_id("default", kind, name),
            backend_prefix=self.prefix,
            announce_ttl=ttl,
            **more,
        )

    async def auth(
        self,
        name: str = "auth-1",
        config: ServiceConfig | None = None,
        networking: InitialNetworkingConfig | None = None,
        http: HTTPFlags = DEFAULT_HTTP,
        **more: Any,
    ) -> Auth:
        """A running auth."""
        new_auth = Auth(
            self.instance_flags("auth", name, **more), config or ServiceConfig(), networking, http
        )
        await new_auth.start()
        self._nodes.append(new_auth)
        return new_auth

    async def proxy(
        self,
        name: str = "proxy-1",
        keep_alive: KeepAlive | None = None,
        *,
        compact: bool = True,
        connect: ConnectFlags | None = None,
        reconnect_interval: float = 0.0,
        heartbeat: HeartbeatFlags = DIRECT,
        tunnel_v01_listen: tuple[str, int] | None = None,
        **more: Any,
    ) -> Proxy:
        """A running proxy."""
        new_proxy = Proxy(
            ProxyFlags(
                self.instance_flags("proxy", name, **more),
                overrides=_overrides(keep_alive, None),
                compact_discovery=compact,
                drain=1.0,
                connect=connect,
                reconnect_interval=reconnect_interval,
                heartbeat=heartbeat,
                tunnel_v01_listen=tunnel_v01_listen,
            )
        )
        await new_proxy.start()
        self._nodes.append(new_proxy)
        return new_proxy

    async def agents(
        self,
        auth: str,
        proxies: list[str],
        count: int = 1,
        *,
        connections: int | None = 1,
        keep_alive: KeepAlive | None = None,
        **more: Any,
    ) -> AgentGroup:
        """Running agents; they redial fast, since landing on the right proxy takes luck.

        `connections` and `keep_alive` of None are for the networking config to say.
        """
        more.setdefault("redial_step", 0.05)
        more.setdefault("overrides", _overrides(keep_alive, connections))
        group = AgentGroup(
            AgentFlags(
                auth=(addresses.parse(auth),),
                proxy=tuple(addresses.parse(proxy) for proxy in proxies),
                count=count,
                **more,
            )
        )
        group.start()
        self._nodes.append(group)
        return group

    def adopt(self, node: Any) -> None:
        """End a node with the others."""
        self._nodes.append(node)

    async def stop(self, node: Any, **options: Any) -> None:
        """End one node now."""
        self._nodes.remove(node)
        await node.stop(**options)

    async def close(self) -> None:
        """End everything, the newest first."""
        for node in reversed(self._nodes):
            await node.stop()


def _overrides(keep_alive: KeepAlive | None, connections: int | None) -> Overrides:
    if keep_alive is None:
        return Overrides(connection_count=connections)
    return Overrides(connections, keep_alive.interval, keep_alive.count_max)


def channel_to(address: str) -> grpc.aio.Channel:
    """A plain channel with its own connection."""
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


async def is_serving(instance: Instance) -> bool:
    """Return whether the instance's gRPC health is SERVING."""
    async with channel_to(instance.grpc_address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def get_diag(instance: Instance, path: str) -> tuple[int, str]:
    """Return status and body of a GET request to the diag port."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{instance.diag_address}{path}") as answer,
    ):
        return answer.status, await answer.text()
