"""The diag HTTP port of an instance: `/healthz`, `/readyz`, `/metrics`, with Teleport's codes, bodies and metrics."""

from __future__ import annotations

import json
import os
import platform

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from fleet import __version__
from fleet.protocol.destination import instance_status
from fleet.protocol.recovery import announce
from fleet.transport.declared_status import DeclaredStatus
from fleet.transport.process import ProcessHealth


def create_registry(process: ProcessHealth) -> CollectorRegistry:
    """Return a registry with the metrics of every instance: `process_state` and `teleport_build_info`."""
    registry = CollectorRegistry()
    state = Gauge(
        "process_state", "State of the process: 0 OK, 1 recovering, 2 degraded, 3 starting", registry=registry
    )
    process.add_listener(lambda now: state.set(int(now)))
    build = Gauge(
        "teleport_build_info",
        "Version of the program and of its runtime; always 1",
        ["version", "gitref", "goversion"],
        registry=registry,
    )
    # `goversion` is the runtime's version: dashboards made for Teleport group by these three labels.
    build.labels(__version__, "", f"python{platform.python_version()}").set(1)
    return registry


def create_app(
    process: ProcessHealth, registry: CollectorRegistry, declared_status: DeclaredStatus | None = None
) -> web.Application:
    """Return the application of the diag port; `declared_status`: report the declared status on `/readyz`."""

    async def healthz(request: web.Request) -> web.Response:
        del request
        return _json(200, {"status": "ok"})

    async def readyz(request: web.Request) -> web.Response:
        del request
        code, status = announce.readyz_response(process.state)
        response = _json(code, {"status": status, "pid": os.getpid()})
        if declared_status is not None:
            response.headers.extend(instance_status.to_headers(declared_status.status))
        return response

    async def metrics(request: web.Request) -> web.Response:
        del request
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return app


def _json(code: int, document: dict[str, object]) -> web.Response:
    # Compact, as Go writes JSON: `{"status":"ok"}`.
    return web.Response(
        status=code, text=json.dumps(document, separators=(",", ":")), content_type="application/json"
    )
