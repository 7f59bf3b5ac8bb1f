"""The L4 load balancer: TCP connections go to its targets by their health, as probes of `/readyz` and dials show it.

A target that is not ready is taken out of rotation; connections it has stay (that is how a sick auth or proxy
strands its agents). When none is ready all are tried: a balancer must not turn a doubt into an outage. One that drains
gets no new connection, whatever else there is: an operator said so.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import aiohttp
import click
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from fleet.nodes.balancer.rotation import DEFAULT_UNREADY_AFTER, Rotation, Seat, Target, parse_flag
from fleet.nodes.shared import addresses, http_site, lifecycle
from fleet.nodes.shared.flags import destination_health_option
from fleet.nodes.shared.numbers import Number
from fleet.nodes.shared.options import Parsed
from fleet.nodes.shared.picking_options import preferring_options
from fleet.nodes.shared.pump import Link, Tasks
from fleet.protocol.destination import health as destination
from fleet.protocol.destination import instance_status, picker, probe_schedule
from fleet.protocol.destination.health import Probe, Proxied
from fleet.protocol.destination.instance_status import Said
from fleet.transport.destinations import Answer, Destinations
from fleet.transport.listen_sockets import stop_listening

log = logging.getLogger(__name__)

#: One target may take this long to be connected, seconds; then the next one is tried.
_DIAL_TIMEOUT = 2.0
_BACKLOG = 1024
#: A probe may take as long as the interval, and this at most, seconds.
_PROBE_TIMEOUT = 1.0
#: While a few probes may decide they come this much more often.
_FASTER = 5
#: What is known of the targets is looked at anew after this, seconds, or when any of them answered differently: a
#: thousand clients that come at once need not each have the shares worked out.
_LOOK_AGAIN = 0.01


def _load(seat: Seat) -> float:
    return float(len(seat.links))


class Balancer:
    """The listening socket and the checks."""

    def __init__(
        self,
        name: str,
        targets: Sequence[Target],
        interval: float,
        preferring: picker.Settings = picker.DEFAULTS,
        destination_health: destination.Settings = destination.RECOMMENDED,
        probe_within: float | None = None,
        unready_after: int = DEFAULT_UNREADY_AFTER,
    ) -> None:
        """Make it; `interval` is that of probes while all is well, seconds.

        A probe may take as long, and 1 s at most, unless `probe_within` says otherwise. A target is out after
        `unready_after` probes in a row that were not answered with 200.
        """
        self.name = name
        self.rotation = Rotation(targets, preferring, unready_after)
        self._seats = {seat.target.name: seat for seat in self.rotation.seats}
        self._looked: tuple[object, float] | None = None
        self._timeout = min(interval, _PROBE_TIMEOUT) if probe_within is None else probe_within
        self._destinations = Destinations(
            self._probe,
            settings=_for_dials(destination_health, interval),
            # The probe has its own timeout: this one is for what hangs elsewhere.
            probes=probe_schedule.Settings(
                interval=interval, fast_interval=interval / _FASTER, timeout=2 * self._timeout
            ),
        )
        self._session: aiohttp.ClientSession | None = None
        self._tasks = Tasks()
        self._server: asyncio.Server | None = None
        self._links: set[Link] = set()
        self.registry = CollectorRegistry()
        self._accepted = Counter(
            "refloat_balancer_connections",
            "Connections given to a target",
            ["target"],
            registry=self.registry,
        )
        self._refused = Counter(
            "refloat_balancer_refused", "Connections no target took", registry=self.registry
        )
        ready = Gauge(
            "refloat_balancer_target_ready", "1 while in rotation", ["target"], registry=self.registry
        )
        held = Gauge(
            "refloat_balancer_open_connections", "Open connections", ["target"], registry=self.registry
        )
        for seat in self.rotation.seats:
            ready.labels(seat.target.name).set_function(functools.partial(self._readiness, seat))
            held.labels(seat.target.name).set_function(functools.partial(_load, seat))

    async def start(self, listen: tuple[str, int]) -> str:
        """Listen and begin to probe. Raises OSError."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Link(self._on_accepted, self._on_ended).near, *listen, backlog=_BACKLOG
        )
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout))
        self._destinations.keep(self._seats)
        return addresses.join(listen[0], self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Refuse new connections and close those there are."""
        if self._server is not None:
            await stop_listening(self._server)
        await self._destinations.close()
        if self._session is not None:
            await self._session.close()
        self._tasks.cancel()
        for link in list(self._links):
            link.close()

    def describe(self) -> list[dict[str, Any]]:
        """What `GET /targets` shows."""
        self._update()
        return [self._description(seat) for seat in self.rotation.seats]

    def _description(self, seat: Seat) -> dict[str, Any]:
        watched = self._destinations.get(seat.target.name)
        verdict = None if watched is None else watched.verdict
        return {
            "name": seat.target.name,
            "address": addresses.join(*seat.target.address),
            "diag": addresses.join(*seat.target.diag),
            "ready": self.rotation.is_ready(seat),
            "status": seat.status,
            "error": seat.error,
            "health": verdict and verdict.health,
            "reason": verdict and verdict.reason,
            "since": verdict and verdict.at,
            "active": verdict and verdict.active.health,
            "passive": verdict and verdict.passive.health,
            "declared": verdict and verdict.declared.health,
            "draining": verdict and verdict.draining and verdict.draining.reason,
            "connections": len(seat.links),
        }

    @property
    def ready(self) -> int:
        """How many targets are in rotation."""
        self._update()
        return self.rotation.ready

    def _readiness(self, seat: Seat) -> float:
        self._update()
        return float(self.rotation.is_ready(seat))

    def _update(self) -> None:
        now = time.time()
        seen = self._destinations.version, [(seat.status, seat.failures) for seat in self.rotation.seats]
        if self._looked is not None and self._looked[0] == seen and abs(now - self._looked[1]) < _LOOK_AGAIN:
            return
        weights = dict.fromkeys(self._seats, 1.0)
        self.rotation.update(self._destinations.candidates(weights), now)
        # Looking may itself have changed what is known: then the next one looks again.
        self._looked = seen, now

    def _on_accepted(self, link: Link) -> None:
        self._links.add(link)
        self._tasks.start(self._connect(link))

    def _on_ended(self, link: Link) -> None:
        self._links.discard(link)
        for seat in self.rotation.seats:
            seat.links.discard(link)

    async def _connect(self, link: Link) -> None:
        self._update()
        for seat in self.rotation.order():
            name = seat.target.name
            try:
                await link.dial(*seat.target.address, within=_DIAL_TIMEOUT)
            except OSError:
                self._destinations.proxied(name, Proxied.FAILURE)
                continue
            self._destinations.proxied(name, Proxied.SUCCESS)
            if link in self._links:  # it may have ended while we dialed
                seat.links.add(link)
            self._accepted.labels(name).inc()
            return
        self._refused.inc()
        link.reset()

    async def _probe(self, name: str) -> Answer:
        """Ask `/readyz` once. A few in a row that are not 200 decide at once; the diagram decides beside that."""
        seat = self._seats[name]
        said: Said | None = None
        assert self._session is not None, "probes begin after the session is made"
        was_out = seat.is_out
        try:
            async with self._session.get(f"http://{addresses.join(*seat.target.diag)}/readyz") as response:
                seat.answered(response.status)
                said = instance_status.read(response.headers.items())
        except TimeoutError:
            seat.failed("no answer in time")
        except (aiohttp.ClientError, OSError) as error:
            seat.failed(str(error))
        if seat.is_out != was_out:
            why = seat.error or f"/readyz says {seat.status}"
            place = "out of" if seat.is_out else "in"
            log.warning("rotation.changed: %s: %s is %s rotation: %s", self.name, name, place, why)
        if said is None or seat.status != 200:
            return Answer(Probe.FAILURE, seat.error or f"/readyz says {seat.status}", said)
        if said.degraded is not None:
            return Answer(Probe.DEGRADED, said.degraded, said)
        return Answer(Probe.SUCCESS, said=said)


def _for_dials(settings: destination.Settings, interval: float) -> destination.Settings:
    """Hold what came of few dials against a target, and not long; of a connection only the dial is seen."""
    if settings.failure_rate is None:
        return settings
    return replace(
        settings,
        failure_rate=0.5,
        unhealthy_rate=0.9,
        rate_window=10.0,
        rate_minimum=5,
        reactivate_after=max(2 * interval, 1.0),
    )


def diagnostics(balancer: Balancer) -> web.Application:
    """`/healthz`, `/readyz`, `/metrics` and `/targets` of a balancer."""

    async def healthz(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(request: web.Request) -> web.Response:
        ready = balancer.ready
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
    preferring: picker.Settings = picker.DEFAULTS,
    destination_health: destination.Settings = destination.RECOMMENDED,
    unready_after: int = DEFAULT_UNREADY_AFTER,
) -> None:
    """Run until SIGTERM or SIGINT. Raises `running.StartError` when a port cannot be had."""
    balancer = Balancer(name, targets, interval, preferring, destination_health, unready_after=unready_after)
    bound = await lifecycle.listening(listen, balancer.start(listen))
    async with http_site.serving(diagnostics(balancer), diag_listen) as diag:
        lifecycle.announce(role="balancer", name=name, listen=bound, diag=diag)
        await lifecycle.until_told_to_end()
    await balancer.stop()


@click.command()
@click.option("--name", default="balancer", show_default=True, help="Its name in logs and in the ready line.")
@addresses.listen_option("--listen", "Where clients connect.")
@addresses.listen_option("--diag-listen", "/healthz, /readyz, /metrics, /targets.")
@click.option(
    "--target",
    "targets",
    type=Parsed("name=host:port,host:port", parse_flag),
    multiple=True,
    required=True,
    help="A target and where its /readyz is asked; repeat.",
)
@click.option(
    "--interval",
    type=Number(min=0.05),
    default=0.5,
    show_default=True,
    help="Seconds between probes of a target that is well; a probe may take as long, and 1 s at most.",
)
@click.option(
    "--unready-after",
    type=click.IntRange(min=1),
    default=DEFAULT_UNREADY_AFTER,
    show_default=True,
    help="Take a target out after so many probes in a row without a 200. Each beyond the first costs a "
    "fifth of the interval: 0.1 s by default.",
)
@preferring_options
@destination_health_option
def command(**given: Any) -> None:
    """Balance TCP connections over the targets whose /readyz says 200, by their health."""
    lifecycle.run(lambda: lifecycle.on_loop(serve(**given)))
