"""The listener of a gateway: its sockets, the current routes, and the calls in progress. docs/reference/gateway.md"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fleet.nodes.gateway.backends import Backends
from fleet.nodes.gateway.call import Call
from fleet.nodes.gateway.context import GatewayRule, OpenCall
from fleet.nodes.gateway.heads import RequestHead
from fleet.nodes.gateway.health import HEALTH_SERVICE, GatewayHealth
from fleet.nodes.gateway.metrics import GatewayMetrics
from fleet.nodes.gateway.refused_requests import RefusedRequest
from fleet.nodes.gateway.sessions import SessionTokens
from fleet.nodes.shared import addresses
from fleet.nodes.shared.pump import Tasks
from fleet.processes import background
from fleet.protocol.destination import picker
from fleet.protocol.retry.budget import RetryBudget
from fleet.protocol.retry.grpc_http2 import Status
from fleet.protocol.retry.grpc_route import GRPCRouteRule
from fleet.protocol.retry.policy import NO_RETRY
from fleet.protocol.retry.route_table import RouteEntry, RouteTable
from fleet.transport.destinations import DestinationPool, Destinations
from fleet.transport.http2.backend_dialer import BackendDialer
from fleet.transport.http2.connection import Http2Connection
from fleet.transport.http2.fields import HeaderBlockCache, HeaderFields
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.http2.stream import Stream
from fleet.transport.listen_sockets import stop_listening

log = logging.getLogger(__name__)

_BACKLOG = 1024
_HEALTH_PREFIX = f"/{HEALTH_SERVICE}/"
#: Most hosts and paths whose rule is cached: callers may invent any number of them.
_MAX_CACHED_RULES = 1024
#: Most methods remembered for their streaming responses. Callers cannot add any.
_MAX_STREAM_METHODS = 1024


class GatewayListener:
    """Accepts calls and gives each what it needs."""

    def __init__(
        self,
        backends: Backends,
        metrics: GatewayMetrics,
        read_head: Callable[[HeaderFields], RequestHead],
        options: ConnectionOptions,
        *,
        max_message: int,
        picking_settings: picker.PickerSettings,
        stream_methods: frozenset[str] = frozenset(),
        budget: RetryBudget | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Start without routes: every call is refused."""
        self._backends = backends
        self._metrics = metrics
        self._head_cache: HeaderBlockCache[RequestHead] = HeaderBlockCache(read_head)
        self._options = options
        self._picking_settings = picking_settings
        #: Paths of methods with streaming responses, as configured. Their calls are never retried.
        self._configured_stream_methods = stream_methods
        #: Paths of methods that responded with a stream, the latest last.
        self._observed_stream_methods: dict[str, None] = {}
        self._budget = budget
        #: One server, or one for each address of the host.
        self._servers: list[asyncio.Server] = []
        self._connections: set[Http2Connection] = set()
        self._calls: set[OpenCall] = set()
        self.health = GatewayHealth()
        #: Set at the end of the last call, while the gateway is shutting down.
        self._calls_ended: asyncio.Event | None = None
        self._table = RouteTable(())
        self._rules: dict[tuple[int, int], GatewayRule] = {}
        self._rule_cache: dict[tuple[str, str], GatewayRule | None] = {}
        self._chance = chance
        self.max_message = max_message
        self.tasks = Tasks()
        self.destinations: Destinations = backends.destinations

    # Called by the gateway.

    async def listen(self, address: tuple[str, int], tls: ssl.SSLContext | None) -> str:
        """Listen, and return host:port. Raises OSError."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._make_connection, *address, ssl=tls, backlog=_BACKLOG)
        self._servers = [server]
        return addresses.join(address[0], server.sockets[0].getsockname()[1])

    async def use_tls(self, tls: ssl.SSLContext) -> None:
        """Use this TLS context for new connections, on the same sockets, so that nobody is refused meanwhile."""
        loop = asyncio.get_running_loop()
        old = self._servers
        sockets = [socket.socket(fileno=os.dup(sock.fileno())) for server in old for sock in server.sockets]
        self._servers = [
            await loop.create_server(self._make_connection, sock=sock, ssl=tls, backlog=_BACKLOG)
            for sock in sockets
        ]
        for server in old:
            await stop_listening(server)

    def apply_routes(self, table: RouteTable) -> None:
        """Use these routes for new calls. Calls in progress are not affected."""
        self._table = table
        self._rules = {
            (id(route_entry.route), route_entry.rule_index): self._make_rule(route_entry)
            for route_entry in table.rules
        }
        self._rule_cache.clear()

    def reapply_routes(self) -> None:
        """Apply the routes again, because addresses of backends have changed."""
        self.apply_routes(self._table)

    async def stop(self, within: float) -> None:
        """Stop accepting calls, wait up to `within` seconds for those in progress, then end them."""
        self.health.stop_serving()
        for server in self._servers:
            await stop_listening(server)
        for connection in list(self._connections):
            connection.retire()
        self._calls_ended = asyncio.Event()
        if self._calls:
            await background.wait_for(self._calls_ended, within)
        if self._calls:
            log.warning("%d calls did not finish within %g s and were cut", len(self._calls), within)
        for call in list(self._calls):
            call.end("the gateway is shutting down")
        for connection in list(self._connections):
            connection.close("the gateway is shutting down")
        self.tasks.cancel()

    def describe(self) -> list[dict[str, Any]]:
        """Return the current rules, for `GET /routes`."""
        return [
            {
                "rule": rule.name,
                "hostnames": list(rule.route_entry.route.hostnames),
                "matches": [
                    {"service": ref.service, "method": ref.method} for ref in rule.route_entry.rule.matches
                ],
                "retry": _describe_retry(rule.route_entry.rule),
                "timeouts": {"request": rule.policy.request, "backend_request": rule.policy.backend_request},
                "call_count": self._metrics.calls.call_count_of(rule.name),
                "retry_counts": self._metrics.retry_counts_of(rule.name),
                "backends": {
                    f"{ref.name}:{ref.port}": {
                        name: round(rule.pool.picker().shares.get(name, 0.0), 4)
                        for name in self._backends.weights_of([ref])
                    }
                    for ref in rule.route_entry.rule.backends
                },
            }
            for rule in self._rules.values()
        ]

    @property
    def stream_methods(self) -> list[str]:
        """Methods whose calls are never retried: configured ones, and those that responded with a stream."""
        return sorted({*self._configured_stream_methods, *self._observed_stream_methods})

    @property
    def call_count(self) -> int:
        """Number of calls in progress."""
        return len(self._calls)

    # Called by calls.

    def chance(self) -> float:
        """Return a random number in [0, 1)."""
        return self._chance()

    def call_later(
        self, seconds: float, callback: Callable[[float], None], argument: float
    ) -> asyncio.Handle:
        """Call back with the argument in so many seconds."""
        return asyncio.get_running_loop().call_later(seconds, callback, argument)

    def find_rule(self, authority: str, path: str) -> GatewayRule | None:
        """Return the rule of a call; None if no rule matches."""
        key = authority, path
        try:
            return self._rule_cache[key]
        except KeyError:
            pass
        route_entry = self._table.find(authority, path)
        rule = None if route_entry is None else self._rules[id(route_entry.route), route_entry.rule_index]
        if rule is not None and (
            path in self._configured_stream_methods or path in self._observed_stream_methods
        ):
            rule = replace(rule, policy=NO_RETRY)
        if len(self._rule_cache) >= _MAX_CACHED_RULES:
            self._rule_cache.clear()
        self._rule_cache[key] = rule
        return rule

    def dialer_of(self, address: str) -> BackendDialer:
        """Return the connections to an address."""
        return self._backends.dialer_of(address)

    def record_first_attempt(self, now: float) -> None:
        """Count a first attempt in the retry budget."""
        if self._budget is not None:
            self._budget.record_first_try(now)

    def allow_retry(self, now: float) -> bool:
        """Return whether a retry may be sent, and count it if so."""
        return self._budget is None or self._budget.take_retry(now)

    def record_stream_method(self, path: str) -> None:
        """Remember a method whose response is a stream. Its calls are no longer retried."""
        if path in self._configured_stream_methods or path in self._observed_stream_methods:
            return
        if len(self._observed_stream_methods) >= _MAX_STREAM_METHODS:
            del self._observed_stream_methods[next(iter(self._observed_stream_methods))]
        self._observed_stream_methods[path] = None
        self._rule_cache.clear()
        log.info("%s responds with a stream: its calls are not retried", path)

    def record_retry(self, rule: GatewayRule, status: Status) -> None:
        """Count an attempt that is retried."""
        self._metrics.record_retry(rule.name, status.name)

    def on_call_end(self, call: OpenCall, rule: GatewayRule | None, status: str) -> None:
        """Count the end of a call."""
        self._calls.discard(call)
        if self._calls_ended is not None and not self._calls:
            self._calls_ended.set()
        self._metrics.calls.record(
            "no route" if rule is None else rule.name, status, time.monotonic() - call.began_at
        )

    def _make_connection(self) -> Http2Connection:
        connection = Http2Connection(
            self._head_cache, self._options, on_stream=self._on_stream, on_end=self._on_disconnect
        )
        self._connections.add(connection)
        return connection

    def _on_disconnect(self, connection: Http2Connection, reason: str) -> None:
        del reason
        self._connections.discard(connection)

    def _make_rule(self, route_entry: RouteEntry) -> GatewayRule:
        weights = self._backends.weights_of(route_entry.rule.backends)
        persistence = route_entry.rule.sessions
        return GatewayRule(
            route_entry,
            route_entry.rule.policy,
            DestinationPool(self.destinations, weights, self._picking_settings),
            None if persistence is None else SessionTokens(persistence, weights),
        )

    def _on_stream(self, stream: Stream, head: RequestHead) -> None:
        try:
            if head.refusal_status is not None:
                stream.listener = RefusedRequest(stream, head.refusal_status, body=head.method != "HEAD")
                self._metrics.calls.record("no route", Status.UNIMPLEMENTED.name, 0.0)
                return
            if head.timeout is not None:
                stream.deadline_at = asyncio.get_running_loop().time() + head.timeout
            if self._is_own_health_call(head):
                self.health.serve_call(stream)
                return
        except Exception:
            # An error raised while a connection is read would end the connection with all calls on it.
            log.exception("internal error: a call of %s could not be started", head.path)
            stream.reset(ErrorCode.INTERNAL_ERROR)
            return
        # The listener receives the headers again, with whether the request ends there.
        stream.listener = call = Call(self, stream)
        self._calls.add(call)

    def _is_own_health_call(self, head: RequestHead) -> bool:
        """Return whether a call asks for the gateway's own health, because no rule names that service."""
        if not head.path.startswith(_HEALTH_PREFIX):
            return False
        rule = self.find_rule(head.authority, head.path)
        return rule is None or all(match.service != HEALTH_SERVICE for match in rule.route_entry.rule.matches)


def _describe_retry(rule: GRPCRouteRule) -> dict[str, Any] | None:
    """Return the retry policy of a rule with its defaults, in seconds; None: its calls are not retried."""
    if rule.retry is None or not rule.policy.attempts:
        return None
    return {
        "attempts": rule.policy.attempts,
        "reasons": sorted(rule.policy.reasons),
        "backoff": rule.policy.backoff,
    }
