"""Teleport's own client (of its Go module, built by `make peers`) against our auths, with its default server name.

docs/reference/wire.md, "Teleport's client", has the results as a table.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleet.nodes.auth.server import Auth
from fleet.nodes.proxy.server import Proxy
from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig
from tests.fakes import teleport
from tests.fakes.certificates import Certificates
from tests.fakes.plane import Plane
from tests.fakes.programs import skip_without
from tests.fakes.teleport import ClientOutcome

pytestmark = pytest.mark.slow

#: Calls of a Teleport cluster that Refloat's auths do not serve.
CLUSTER_CALLS = {
    "Ping",
    "GetInstances",
    "GetInventoryStatus",
    "ListRemoteClusters",
    "ListUnifiedResources",
    "WatchEvents",
    *(
        f"ListResources/{kind}"
        for kind in ("node", "app_server", "db_server", "kube_server", "windows_desktop_service")
    ),
}


class Fleet:
    """An auth and a proxy with TLS, and a Teleport client with the certificate of any role."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        self._plane = plane
        self._certificates = Certificates(folder)
        self.auth: Auth
        self.proxy: Proxy

    async def start(self, config: ServiceConfig) -> None:
        self.auth = await self._plane.auth(config=config, tls=self._certificates.of("auth-1", "auth"))
        self.proxy = await self._plane.proxy(tls=self._certificates.of("proxy-1", "proxy"))

    async def run_client(self, name: str, role: str) -> dict[str, ClientOutcome]:
        """Run the client with a new certificate; each call is by its name."""
        tls = self._certificates.of(name, role)
        assert tls.key
        assert tls.certificate
        assert tls.authority
        return await asyncio.to_thread(
            teleport.run_client,
            self.auth.instance.grpc_address,
            tls_files=(tls.key, tls.certificate, tls.authority),
            http_address=self.auth.http_address,
            http_writes=True,
        )


@pytest.fixture
async def fleet(valkey_url: str, prefix: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    skip_without(teleport.missing_reason())
    plane = Plane(valkey_url, prefix)
    teleport_readable_fleet = Fleet(plane, tmp_path)
    await teleport_readable_fleet.start(ServiceConfig(PickHealthyMode.RECONNECT, ""))
    yield teleport_readable_fleet
    await plane.close()


async def test_console_role_reads_and_writes(fleet: Fleet) -> None:
    """Every gRPC service of Teleport that an auth serves, and the HTTP calls that the console's role may make."""
    calls = await fleet.run_client("console", "console")
    refusals = {name: outcome.kind for name, outcome in calls.items() if not outcome.ok}
    assert refusals == dict.fromkeys(CLUSTER_CALLS, "NotImplemented") | {
        "UpdateClusterNetworkingConfig/old": "CompareFailed",
        "UpsertProxy": "AccessDenied",
        "UpsertAuthServer": "AccessDenied",
        "DeleteProxy": "NotFound",
    }
    auth_id, proxy_id = fleet.auth.instance.flags.id, fleet.proxy.instance.flags.id
    auths = {auth_id: f"auth_server {fleet.auth.instance.grpc_address}"}
    proxies = {proxy_id: calls["ListProxyServers"].value[proxy_id]}
    assert proxies[proxy_id].startswith("proxy 127.0.0.1:")
    assert calls["ListAuthServers"].value == calls["GetAuthServers"].value == auths
    assert calls["ListProxyServers"].value == calls["GetProxies"].value == proxies
    assert calls["GetServiceConfig"].value == {"mode": 2, "health_check": True}
    assert calls["Health"].value == "SERVING"
    config = calls["GetClusterNetworkingConfig"].value
    assert (config["name"], config["version"], config["origin"]) == (
        "cluster-networking-config",
        "v2",
        "defaults",
    )
    assert config["keep_alive_interval"] == "5m0s"
    assert [calls[f"{verb}ClusterNetworkingConfig"].value for verb in ("Update", "Upsert", "Reset")] == [
        4,
        5,
        3,
    ]
    assert calls["GetTunnelConnections"].value == {"client-leaf-1": "leaf-1 proxy-1"}
    assert calls["GetAllTunnelConnections/deleted"].value == {}


async def test_proxy_role_writes_its_own_heartbeat(fleet: Fleet) -> None:
    """UpsertProxy takes Teleport's ServerV2 as JSON, GetProxies returns it, and DeleteProxy ends it."""
    calls = await fleet.run_client("client", "proxy")
    assert calls["UpsertProxy"].ok
    assert calls["GetProxies/written"].value["client"] == "proxy 10.0.0.8:3080"
    assert calls["DeleteProxy"].ok
    assert "client" not in calls["GetProxies/deleted"].value
    assert calls["DeleteAllProxies"].kind == "AccessDenied"
    assert calls["UpdateClusterNetworkingConfig"].kind == "AccessDenied"


async def test_auth_role_writes_its_own_heartbeat(fleet: Fleet) -> None:
    calls = await fleet.run_client("client", "auth")
    assert calls["UpsertAuthServer"].ok
    assert calls["UpsertProxy"].kind == "AccessDenied"
    later_calls = await fleet.run_client("console", "console")
    assert later_calls["ListAuthServers"].value["client"] == "auth_server 10.0.0.8:3080"
