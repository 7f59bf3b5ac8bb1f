"""The diag port of a gateway: the common endpoints, plus routes and destinations as JSON. docs/reference/gateway.md"""

from __future__ import annotations

from aiohttp import web
from prometheus_client import CollectorRegistry

from fleet.nodes.gateway.backends import Backends
from fleet.nodes.gateway.listener import GatewayListener
from fleet.nodes.gateway.routes_file import RoutesFile
from fleet.transport import diag
from fleet.transport.process import ProcessHealth


def gateway_site(
    process: ProcessHealth,
    registry: CollectorRegistry,
    listener: GatewayListener,
    backends: Backends,
    file: RoutesFile,
) -> web.Application:
    """Return an application with `/healthz`, `/readyz`, `/metrics`, `/routes` and `/destinations`."""

    async def routes(request: web.Request) -> web.Response:
        del request
        return web.json_response(
            {
                "file": str(file.path),
                "loaded_at": file.loaded_at,
                "valid": not file.problems,
                "problems": file.problems,
                "rules": listener.describe(),
                "streams": listener.stream_methods,
                "calls": listener.call_count,
            }
        )

    async def destinations(request: web.Request) -> web.Response:
        del request
        return web.json_response(
            {"destinations": backends.describe(), "unresolved": backends.list_unresolved()}
        )

    app = diag.create_app(process, registry)
    app.add_routes([web.get("/routes", routes), web.get("/destinations", destinations)])
    return app
