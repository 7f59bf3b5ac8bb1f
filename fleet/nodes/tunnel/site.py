"""The diag port of a tunnel server: the common endpoints, plus targets and their sessions as JSON.

docs/reference/tunnel.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from fleet.nodes.tunnel.flags import spell_target
from fleet.protocol.tunnel.messages import Target
from fleet.protocol.tunnel.server_state import Peer
from fleet.transport import diag
from fleet.transport.process import ProcessHealth
from fleet.transport.tunnel.server import TunnelServer


@dataclass(frozen=True, slots=True)
class TunnelServerView:
    """A tunnel server as its diag port describes it."""

    #: One for each protocol version.
    tunnel_servers: Sequence[TunnelServer]
    #: Local ports, host:port, by the target that they lead to.
    forwards: Mapping[Target, str] = field(default_factory=dict)
    #: Services of the server itself, host:port.
    services: Mapping[Target, str] = field(default_factory=dict)

    @property
    def client_count(self) -> int:
        """Number of connected clients."""
        return sum(tunnel_server.client_count for tunnel_server in self.tunnel_servers)

    def registrations(self) -> dict[Target, Peer]:
        """Return the client that registered each target."""
        return {
            target: peer
            for tunnel_server in self.tunnel_servers
            for target, peer in tunnel_server.targets().items()
        }

    def session_counts(self) -> dict[Target, int]:
        """Return the number of open sessions by target."""
        counts: dict[Target, int] = {}
        for tunnel_server in self.tunnel_servers:
            for target, count in tunnel_server.session_counts().items():
                counts[target] = counts.get(target, 0) + count
        return counts

    def describe(self) -> dict[str, Any]:
        """Return the content of `GET /targets`: registered targets, own services, and targets of local ports."""
        peers, counts = self.registrations(), self.session_counts()
        targets = sorted({*peers, *counts, *self.forwards, *self.services})
        return {
            "client_count": self.client_count,
            "wires": [tunnel_server.wire.value for tunnel_server in self.tunnel_servers],
            "targets": [
                {
                    "target": spell_target(target),
                    "registered": target in peers,
                    "client": _name_of(peers.get(target)),
                    "service": self.services.get(target, ""),
                    "forward": self.forwards.get(target, ""),
                    "session_count": counts.get(target, 0),
                }
                for target in targets
            ],
        }


def _name_of(peer: Peer | None) -> str:
    """Return the name of a client: the first one that its certificate proves, else the one that it gives itself."""
    return "" if peer is None else next(iter(peer.identity), peer.name)


class TunnelServerCollector(Collector):
    """Clients, targets and sessions at the moment of the scrape. Targets without sessions have no series."""

    def __init__(self, view: TunnelServerView, registry: CollectorRegistry) -> None:
        self._view = view
        registry.register(self)

    @override
    def collect(self) -> Iterable[Metric]:
        clients = GaugeMetricFamily(
            "refloat_tunnel_server_clients", "Connected clients", value=self._view.client_count
        )
        targets = GaugeMetricFamily(
            "refloat_tunnel_server_targets", "Registered targets", value=len(self._view.registrations())
        )
        sessions = GaugeMetricFamily(
            "refloat_tunnel_server_sessions", "Open sessions, by target", labels=["target"]
        )
        for target, count in sorted(self._view.session_counts().items()):
            sessions.add_metric([spell_target(target)], count)
        return [clients, targets, sessions]


def tunnel_site(
    process: ProcessHealth, registry: CollectorRegistry, view: TunnelServerView
) -> web.Application:
    """Return an application with `/healthz`, `/readyz`, `/metrics` and `/targets`."""

    async def targets(request: web.Request) -> web.Response:
        del request
        return web.json_response(view.describe())

    TunnelServerCollector(view, registry)
    app = diag.create_app(process, registry)
    app.add_routes([web.get("/targets", targets)])
    return app
