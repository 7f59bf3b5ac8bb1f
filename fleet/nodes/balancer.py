"""The L4 load balancer: TCP connections go round robin to the targets whose `/readyz` says 200.

A target that is not ready is taken out of rotation; connections it has stay (that is how a sick auth or proxy
strands its agents). When none is ready all are tried: a balancer must not turn a doubt into an outage.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from typing import Any

import aiohttp
import click
import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from typing_extensions import override

from fleet.nodes import addresses, http_site, running
from fleet.nodes.pump import Link, Tasks
from fleet.nodes.rotation import Rotation, Seat, Target, parse_flag

log = logging.getLogger(__name__)

#: One target may take this long to be connected, seconds; then the next one is tried.
_DIAL_TIMEOUT = 2.0
_BACKLOG = 1024


def _readiness(seat: Seat) -> float:
    return float(seat.ready)


def _load(seat: Seat) -> float:
    return float(len(seat.links))


class Balancer:
    """The listening socket and the checks."""

    def __init__(self, name: str, targets: Sequence[Target], interval: float) -> None:
        self.name = name
        self.rotation = Rotation(targets)
        self._interval = interval
        self._tasks = Tasks()
        self._server: asyncio.Server | None = None
        self._links: set[Link] = set()
        self.registry = CollectorRegistry()
        self._accepted = Counter(
            "balancer_connections", "Connections given to a target", ["target"], registry=self.registry
        )
        self._refused = Counter("balancer_refused", "Connections no target took", registry=self.registry)
        ready = Gauge("balancer_target_ready", "1 while in rotation", ["target"], registry=self.registry)
        held = Gauge("balancer_open_connections", "Open connections", ["target"], registry=self.registry)
        for seat in self.rotation.seats:
            ready.labels(seat.target.name).set_function(functools.partial(_readiness, seat))
            held.labels(seat.target.name).set_function(functools.partial(_load, seat))

    async def start(self, listen: tuple[str, int]) -> str:
        """Listen and begin to check. Raises OSError."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Link(self._on_accepted, self._on_ended).near, *listen, backlog=_BACKLOG
        )
        self._tasks.start(self._check_all())
        return addresses.join(listen[0], self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Refuse new connections and close those there are."""
        if self._server is not None:
            self._server.close()
        self._tasks.cancel()
        for link in list(self._links):
            link.close()

    def describe(self) -> list[dict[str, Any]]:
        """What `GET /targets` shows."""
        return [
            {
                "name": seat.target.name,
                "address": addresses.join(*seat.target.address),
                "diag": addresses.join(*seat.target.diag),
                "ready": seat.ready,
                "status": seat.status,
                "error": seat.error,
                "connections": len(seat.links),
            }
            for seat in self.rotation.seats
        ]

    def _on_accepted(self, link: Link) -> None:
        self._links.add(link)
        self._tasks.start(self._connect(link))

    def _on_ended(self, link: Link) -> None:
        self._links.discard(link)
        for seat in self.rotation.seats:
            seat.links.discard(link)

    async def _connect(self, link: Link) -> None:
        for seat in self.rotation.order():
            try:
                await link.dial(*seat.target.address, within=_DIAL_TIMEOUT)
            except OSError:
                continue
            if link in self._links:  # it may have ended while we dialed
                seat.links.add(link)
            self._accepted.labels(seat.target.name).inc()
            return
        self._refused.inc()
        link.reset()

    async def _check_all(self) -> None:
        timeout = aiohttp.ClientTimeout(total=min(self._interval, 1.0))
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                try:
                    await asyncio.gather(*(self._check(session, seat) for seat in self.rotation.seats))
                except Exception:
                    log.exception("a check of the targets failed")
                await asyncio.sleep(self._interval)

    async def _check(self, session: aiohttp.ClientSession, seat: Seat) -> None:
        before = seat.ready
        try:
            async with session.get(f"http://{addresses.join(*seat.target.diag)}/readyz") as response:
                seat.status, seat.error = response.status, ""
        except TimeoutError:
            seat.status, seat.error = None, "no answer in time"
        except (aiohttp.ClientError, OSError) as error:
            seat.status, seat.error = None, str(error)
        if seat.ready != before:
            why = seat.error or f"/readyz says {seat.status}"
            log.warning(
                "%s: %s is %s rotation: %s",
                self.name,
                seat.target.name,
                "in" if seat.ready else "out of",
                why,
            )


def diagnostics(balancer: Balancer) -> web.Application:
    """`/healthz`, `/readyz`, `/metrics` and `/targets` of a balancer."""

    async def healthz(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(request: web.Request) -> web.Response:
        ready = balancer.rotation.ready
        if ready == 0:
            return web.json_response({"status": "no target is ready"}, status=503)
        return web.json_response({"status": "ok", "ready": ready})

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(balancer.registry), content_type="text/plain", charset="utf-8"
        )

    async def targets(request: web.Request) -> web.Response:
        return web.json_response({"targets": balancer.describe()})

    app = web.Application()
    for path, handler in (
        ("/healthz", healthz),
        ("/readyz", readyz),
        ("/metrics", metrics),
        ("/targets", targets),
    ):
        app.router.add_get(path, handler)
    return app


async def serve(
    name: str,
    targets: Sequence[Target],
    *,
    listen: tuple[str, int],
    diag_listen: tuple[str, int],
    interval: float,
) -> None:
    """Run until SIGTERM or SIGINT. Raises `running.StartError` when a port cannot be had."""
    balancer = Balancer(name, targets, interval)
    bound = await running.listening(listen, balancer.start(listen))
    async with http_site.serving(diagnostics(balancer), diag_listen) as diag:
        running.announce(role="balancer", name=name, listen=bound, diag=diag)
        await running.until_told_to_end()
    await balancer.stop()


class _TargetFlag(click.ParamType[Target]):
    name = "name=host:port,host:port"

    @override
    def convert(
        self, value: str | Target, param: click.Parameter | None, ctx: click.Context | None
    ) -> Target:
        try:
            return value if isinstance(value, Target) else parse_flag(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.option("--name", default="balancer", show_default=True, help="Its name in logs and in the ready line.")
@click.option(
    "--listen",
    type=addresses.Address(),
    default="127.0.0.1:0",
    show_default=True,
    help="Where clients connect.",
)
@click.option(
    "--diag-listen",
    type=addresses.Address(),
    default="127.0.0.1:0",
    show_default=True,
    help="/healthz, /readyz, /metrics, /targets.",
)
@click.option(
    "--target",
    "targets",
    type=_TargetFlag(),
    multiple=True,
    required=True,
    help="A target and where its /readyz is asked; repeat.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.05),
    default=0.5,
    show_default=True,
    help="Seconds between checks; a check may take as long, and 1 s at most.",
)
def command(
    name: str,
    listen: tuple[str, int],
    diag_listen: tuple[str, int],
    targets: tuple[Target, ...],
    interval: float,
) -> None:
    """Balance TCP connections over the targets whose /readyz says 200."""
    running.run(
        lambda: uvloop.run(serve(name, targets, listen=listen, diag_listen=diag_listen, interval=interval))
    )
