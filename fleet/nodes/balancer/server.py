"""The L4 load balancer: sends TCP connections to its targets by health, from probes of `/readyz` and from dials.

A target that is not ready leaves the rotation; its open connections stay (that is how an unhealthy auth or proxy
strands its agents). If no target is ready, all are tried, so that a wrong probe is no outage. A draining target never
gets new connections, because an operator decided so.
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

from fleet.nodes.balancer.rotation import (
    DEFAULT_UNREADY_AFTER,
    BalancerTarget,
    Rotation,
    TargetState,
    parse_flag,
)
from fleet.nodes.shared import addresses, http_site, lifecycle
from fleet.nodes.shared.flags import destination_health_option
from fleet.nodes.shared.numbers import FiniteRange
from fleet.nodes.shared.options import ParsedOption
from fleet.nodes.shared.picking_options import picking_options
from fleet.nodes.shared.pump import ConnectionPair, Tasks
from fleet.protocol.destination import health as destination
from fleet.protocol.destination import instance_status, picker, probe_schedule
from fleet.protocol.destination.health import ProbeOutcome, RequestOutcome
from fleet.protocol.destination.instance_status import InstanceStatus
from fleet.transport import connection_errors
from fleet.transport.destinations import Destinations, ProbeResult
from fleet.transport.listen_sockets import stop_listening

log = logging.getLogger(__name__)

#: Seconds to connect to one target before the next one is tried.
_DIAL_TIMEOUT = 2.0
_BACKLOG = 1024
#: Longest timeout of a probe, seconds. It is no longer than the probe interval.
_PROBE_TIMEOUT = 1.0
#: Probes come this many times as often while a few of them may change the health.
_FAST_PROBE_FACTOR = 5
#: Seconds after which the shares are worked out again, unless a target responded differently before: a thousand clients
#: that connect at once share one calculation.
_UPDATE_INTERVAL = 0.01


def _connection_count(state: TargetState) -> float:
    return float(len(state.links))


class LoadBalancer:
    """The listening socket, the probes and the open connections."""

    def __init__(
        self,
        name: str,
        targets: Sequence[BalancerTarget],
        interval: float,
        picking_settings: picker.PickerSettings = picker.DEFAULTS,
        destination_health: destination.HealthSettings = destination.RECOMMENDED_SETTINGS,
        probe_timeout: float | None = None,
        unready_after: int = DEFAULT_UNREADY_AFTER,
    ) -> None:
        """`interval`: seconds between probes of a healthy target.

        The timeout of a probe is `probe_timeout`, or else the interval and at most 1 s. A target leaves the rotation
        after `unready_after` probes in a row without HTTP 200.
        """
        self.name = name
        self.rotation = Rotation(targets, picking_settings, unready_after)
        self._states_by_name = {state.target.name: state for state in self.rotation.states}
        self._last_update: tuple[object, float] | None = None
        self._probe_timeout = min(interval, _PROBE_TIMEOUT) if probe_timeout is None else probe_timeout
        self._destinations = Destinations(
            self._probe,
            health_settings=_dial_health_settings(destination_health, interval),
            # Each probe has its own timeout; this one is for anything else that hangs.
            probe_settings=probe_schedule.ProbeSettings(
                interval=interval,
                fast_interval=interval / _FAST_PROBE_FACTOR,
                timeout=2 * self._probe_timeout,
            ),
        )
        self._session: aiohttp.ClientSession | None = None
        self._tasks = Tasks()
        self._server: asyncio.Server | None = None
        self._links: set[ConnectionPair] = set()
        self.registry = CollectorRegistry()
        self._accepted_connections = Counter(
            "refloat_balancer_connections",
            "Connections sent to a target",
            ["target"],
            registry=self.registry,
        )
        self._refused_connections = Counter(
            "refloat_balancer_refused_connections",
            "Connections refused because no target accepted them",
            registry=self.registry,
        )
        ready = Gauge(
            "refloat_balancer_target_ready",
            "1 while the target is in rotation",
            ["target"],
            registry=self.registry,
        )
        open_connections = Gauge(
            "refloat_balancer_open_connections",
            "Open connections of the target",
            ["target"],
            registry=self.registry,
        )
        for state in self.rotation.states:
            ready.labels(state.target.name).set_function(functools.partial(self._readiness, state))
            open_connections.labels(state.target.name).set_function(
                functools.partial(_connection_count, state)
            )

    async def start(self, listen: tuple[str, int]) -> str:
        """Listen and start the probes. Raises OSError."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ConnectionPair(self._on_accepted, self._on_ended).near, *listen, backlog=_BACKLOG
        )
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._probe_timeout))
        self._destinations.set_destinations(self._states_by_name)
        return addresses.join(listen[0], self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None:
            await stop_listening(self._server)
        await self._destinations.close()
        if self._session is not None:
            await self._session.close()
        self._tasks.cancel()
        for link in list(self._links):
            link.close()

    def describe(self) -> list[dict[str, Any]]:
        """Return the content of `GET /targets`."""
        self._update()
        return [self._describe_target(state) for state in self.rotation.states]

    def _describe_target(self, state: TargetState) -> dict[str, Any]:
        probed_destination = self._destinations.get(state.target.name)
        verdict = None if probed_destination is None else probed_destination.verdict
        return {
            "name": state.target.name,
            "address": addresses.join(*state.target.address),
            "diag": addresses.join(*state.target.diag_address),
            "ready": self.rotation.is_ready(state),
            "status": state.http_status,
            "error": state.error,
            "health": verdict and verdict.health,
            "reason": verdict and verdict.reason,
            "since": verdict and verdict.changed_at,
            "active": verdict and verdict.active.health,
            "passive": verdict and verdict.passive.health,
            "declared": verdict and verdict.declaration.health,
            "draining": verdict and verdict.drain_request and verdict.drain_request.reason,
            "connections": len(state.links),
        }

    @property
    def ready_count(self) -> int:
        """Number of targets in rotation."""
        self._update()
        return self.rotation.ready_count

    def _readiness(self, state: TargetState) -> float:
        self._update()
        return float(self.rotation.is_ready(state))

    def _update(self) -> None:
        now = time.time()
        fingerprint = (
            self._destinations.version,
            [(state.http_status, state.consecutive_failures) for state in self.rotation.states],
        )
        if (
            self._last_update is not None
            and self._last_update[0] == fingerprint
            and abs(now - self._last_update[1]) < _UPDATE_INTERVAL
        ):
            return
        weights = dict.fromkeys(self._states_by_name, 1.0)
        self.rotation.update(self._destinations.candidates(weights), now)
        # `candidates` may itself change what is known; the next call checks again.
        self._last_update = fingerprint, now

    def _on_accepted(self, link: ConnectionPair) -> None:
        self._links.add(link)
        self._tasks.start(self._connect(link))

    def _on_ended(self, link: ConnectionPair) -> None:
        self._links.discard(link)
        for state in self.rotation.states:
            state.links.discard(link)

    async def _connect(self, link: ConnectionPair) -> None:
        self._update()
        for state in self.rotation.next_order():
            name = state.target.name
            try:
                await link.dial(*state.target.address, within=_DIAL_TIMEOUT)
            except OSError:
                self._destinations.record_request(name, RequestOutcome.FAILURE)
                continue
            self._destinations.record_request(name, RequestOutcome.SUCCESS)
            if link in self._links:  # it may have ended during the dial
                state.links.add(link)
            self._accepted_connections.labels(name).inc()
            return
        self._refused_connections.inc()
        link.reset()

    async def _probe(self, name: str) -> ProbeResult:
        """Probe `/readyz` once. Several failures in a row take the target out at once, whatever its health."""
        state = self._states_by_name[name]
        declared_status: InstanceStatus | None = None
        assert self._session is not None, "probes start after the session is open"
        was_out = state.is_out_of_rotation
        try:
            async with self._session.get(
                f"http://{addresses.join(*state.target.diag_address)}/readyz"
            ) as response:
                state.record_response(response.status)
                declared_status = instance_status.from_headers(response.headers.items())
        except TimeoutError:
            state.record_failure("no response in time")
        except (aiohttp.ClientError, OSError) as error:
            reason = connection_errors.describe(error) if isinstance(error, OSError) else str(error)
            state.record_failure(reason)
        if state.is_out_of_rotation != was_out:
            reason = state.error or f"/readyz returned HTTP {state.http_status}"
            place = "out of" if state.is_out_of_rotation else "in"
            log.warning("rotation.changed: %s: %s is %s rotation: %s", self.name, name, place, reason)
        if declared_status is None or state.http_status != 200:
            return ProbeResult(
                ProbeOutcome.FAILURE,
                state.error or f"/readyz returned HTTP {state.http_status}",
                declared_status,
            )
        if declared_status.degraded_reason is not None:
            return ProbeResult(ProbeOutcome.DEGRADED, declared_status.degraded_reason, declared_status)
        return ProbeResult(ProbeOutcome.SUCCESS, status=declared_status)


def _dial_health_settings(
    settings: destination.HealthSettings, interval: float
) -> destination.HealthSettings:
    """Return settings for dials: they are few, and each is the only thing seen of its connection."""
    if settings.failure_rate is None:
        return settings
    return replace(
        settings,
        failure_rate=0.5,
        unhealthy_rate=0.9,
        rate_window=10.0,
        rate_min_requests=5,
        reactivate_after=max(2 * interval, 1.0),
    )


def diag_app(balancer: LoadBalancer) -> web.Application:
    """Return the diag port of a balancer: `/healthz`, `/readyz`, `/metrics` and `/targets`."""

    async def healthz(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(request: web.Request) -> web.Response:
        ready_count = balancer.ready_count
        if ready_count == 0:
            return web.json_response({"status": "no target is ready"}, status=503)
        return web.json_response({"status": "ok", "ready": ready_count})

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
    targets: Sequence[BalancerTarget],
    *,
    listen: tuple[str, int],
    diag_listen: tuple[str, int],
    interval: float,
    picking_settings: picker.PickerSettings = picker.DEFAULTS,
    destination_health: destination.HealthSettings = destination.RECOMMENDED_SETTINGS,
    unready_after: int = DEFAULT_UNREADY_AFTER,
) -> None:
    """Run until SIGTERM or SIGINT. Raises `lifecycle.NodeStartError` if a port cannot be used."""
    balancer = LoadBalancer(
        name, targets, interval, picking_settings, destination_health, unready_after=unready_after
    )
    listen_address = await lifecycle.start_listening(listen, balancer.start(listen))
    async with http_site.serve(diag_app(balancer), diag_listen) as diag:
        lifecycle.print_ready_line(role="balancer", name=name, listen=listen_address, diag=diag)
        await lifecycle.wait_for_stop_signal()
    await balancer.stop()


@click.command()
@click.option(
    "--name",
    default="balancer",
    show_default=True,
    help="Name of this balancer in logs and in the ready line.",
)
@addresses.listen_option("--listen", "Listen address for client connections; port 0: any free port.")
@addresses.listen_option(
    "--diag-listen", "Listen address of /healthz, /readyz, /metrics and /targets; port 0: any free port."
)
@click.option(
    "--target",
    "targets",
    type=ParsedOption("name=host:port,host:port", parse_flag),
    multiple=True,
    required=True,
    help="Name and address of a target, and the address of its /readyz. Repeatable.",
)
@click.option(
    "--interval",
    type=FiniteRange(min=0.05),
    default=0.5,
    show_default=True,
    help="Seconds between two probes of a healthy target. A probe times out after this time, at most 1 s.",
)
@click.option(
    "--unready-after",
    type=click.IntRange(min=1),
    default=DEFAULT_UNREADY_AFTER,
    show_default=True,
    help="A target leaves the rotation after this number of failed probes in a row (no HTTP 200). After the first "
    "failure the interval is five times shorter (0.1 s by default).",
)
@picking_options
@destination_health_option
def command(**options: Any) -> None:
    """Balance TCP connections over healthy targets.

    Probes of /readyz decide which targets are healthy.
    """
    lifecycle.run(lambda: lifecycle.run_on_loop(serve(**options)))
