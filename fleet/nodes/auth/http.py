"""The HTTP part of the auth API: proxies, auths and tunnel connections, with Teleport's paths and JSON.

RFD 226, "Auth HTTP Clients", lists the calls; its web-login calls are not implemented. docs/reference/auth-http.md.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from google.protobuf import json_format
from google.protobuf.timestamp_pb2 import Timestamp
from prometheus_client import Counter

from fleet.nodes.auth import instance_admission
from fleet.nodes.shared import addresses
from fleet.nodes.shared.asgi_site import CALLER_KEY
from fleet.nodes.shared.instance import LONGEST_ID, Instance
from fleet.protocol import durations
from fleet.protocol.instance_labels import CONNECT_LABEL, DIAG_LABEL, HEARTBEAT_AUTH_LABEL, HTTP_LABEL
from fleet.protocol.recovery import announce
from fleet.transport.backend import AuthOrProxy, BackendUnavailableError
from fleet.transport.http_close import Receive, Scope, Send
from fleet.transport.peers import Caller
from fleet.wire import types_pb2

log = logging.getLogger(__name__)

_RESOURCE_KINDS: dict[AuthOrProxy, str] = {"auth": "auth_server", "proxy": "proxy"}
#: Largest accepted request body, in bytes.
_MAX_BODY_BYTES = 262_144
#: Longest TTL of a resource, seconds. Longer ones are a mistake.
_LONGEST_TTL = 86_400.0
_SHORTEST_TTL = 0.001  # the backend counts milliseconds
_NAME = re.compile(r"[A-Za-z0-9._@-]+")

Document = dict[str, Any]


class HTTPError(Exception):
    """An HTTP error: a status code and a message."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True)
class _Route:
    method: str
    path: re.Pattern[str]
    call: str
    #: Called with the path parameters and the body.
    handler: Callable[..., Awaitable[Any]]
    #: The handler also receives the caller's certificate, as its first argument.
    takes_caller: bool = False


class AuthHTTP:
    """The ASGI application. Handlers are named after the calls in RFD 226."""

    def __init__(self, instance: Instance, host: str) -> None:
        """`host` is the address on which the auth listens."""
        self._instance = instance
        self._host = host
        self._backend = instance.backend
        self._requests = Counter(
            "refloat_auth_http_requests",
            "Requests to the HTTP part of the auth API",
            ["call", "code"],
            registry=instance.registry,
        )
        self._routes = [
            _route("POST", "proxies", "UpsertProxy", self._upsert_proxy, takes_caller=True),
            _route("GET", "proxies", "GetProxies", self._get_proxies),
            _route("DELETE", "proxies", "DeleteAllProxies", self._delete_all_proxies),
            _route("DELETE", "proxies/([^/]+)", "DeleteProxy", self._delete_proxy, takes_caller=True),
            _route("POST", "authservers", "UpsertAuthServer", self._upsert_auth_server, takes_caller=True),
            _route("GET", "authservers", "GetAuthServers", self._get_auth_servers),
            _route("POST", "tunnelconnections", "UpsertTunnelConnection", self._upsert_tunnel_connection),
            _route("GET", "tunnelconnections", "GetAllTunnelConnections", self._get_tunnel_connections),
            _route("GET", "tunnelconnections/([^/]+)", "GetTunnelConnections", self._get_tunnel_connections),
            _route(
                "DELETE",
                "tunnelconnections/([^/]+)/([^/]+)",
                "DeleteTunnelConnection",
                self._delete_tunnel_connection,
            ),
            _route(
                "DELETE",
                "tunnelconnections/([^/]+)",
                "DeleteTunnelConnections",
                self._delete_tunnel_connections,
            ),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        assert scope["type"] == "http", "the server is HTTP only and has no lifespan"
        call, code, document = "", 200, None
        try:
            route, path_parameters = self._find_route(scope)
            call = route.call
            caller: Caller | None = scope["state"].get(CALLER_KEY)
            if route.method != "GET":
                self._require_role(call, caller)
            body = [await _read_document(receive)] if route.method == "POST" else []
            callers = (caller,) if route.takes_caller else ()
            document = await route.handler(*callers, *path_parameters, *body)
        except HTTPError as http_error:
            code, document = http_error.code, {"error": {"message": str(http_error)}}
        except BackendUnavailableError as error:
            code, document = 503, {"error": {"message": str(error)}}
        except Exception:
            log.exception("http.failed: %s failed with an internal error", call)
            code, document = 500, {"error": {"message": "internal error"}}
        self._requests.labels(call or "unknown", code).inc()
        text = json.dumps(document, separators=(",", ":")).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def _require_role(self, call: str, caller: Caller | None) -> None:
        refusal = instance_admission.call_refusal_of(
            call, caller, self._host, allow_anonymous=self._instance.flags.allow_anonymous
        )
        if refusal:
            raise HTTPError(403, refusal)

    def _require_identity(
        self, caller: Caller | None, kind: AuthOrProxy, instance_id: str, hostname: str = ""
    ) -> None:
        cluster = self._instance.flags.cluster
        refusal = instance_admission.identity_refusal_of(caller, kind, instance_id, cluster, hostname)
        if refusal:
            raise HTTPError(403, refusal)

    def _find_route(self, scope: Scope) -> tuple[_Route, tuple[str, ...]]:
        path = scope["raw_path"].decode("latin-1")
        is_known_path = False
        for route in self._routes:
            match = route.path.fullmatch(path)
            if match is None:
                continue
            is_known_path = True
            if route.method == scope["method"]:
                return route, tuple(_check_name(unquote(part), "the path") for part in match.groups())
        if is_known_path:
            raise HTTPError(405, f"method {scope['method']} is not allowed for this path")
        raise HTTPError(404, f"path {path[:200]!r} was not found")

    async def _upsert_proxy(self, caller: Caller | None, body: Document) -> Document:
        return await self._upsert("proxy", caller, body)

    async def _upsert_auth_server(self, caller: Caller | None, body: Document) -> Document:
        return await self._upsert("auth", caller, body)

    async def _upsert(self, kind: AuthOrProxy, caller: Caller | None, body: Document) -> Document:
        server = _read_server(kind, body.get("server"))
        self._require_identity(caller, kind, server.metadata.name, server.spec.hostname)
        # The auth that writes the resource sets this label itself, whatever the sender says.
        if HEARTBEAT_AUTH_LABEL in server.metadata.labels:
            del server.metadata.labels[HEARTBEAT_AUTH_LABEL]
        if kind == "proxy":
            server.metadata.labels[HEARTBEAT_AUTH_LABEL] = self._instance.flags.id
        now, ttl = time.time(), _read_ttl(body)
        if ttl:
            server.metadata.expires.FromNanoseconds(durations.to_nanoseconds(now + ttl))
        remaining_ttl = _remaining_ttl_of(server.metadata.expires, now)
        if not server.metadata.HasField("expires"):
            server.metadata.expires.FromNanoseconds(durations.to_nanoseconds(now + remaining_ttl))
        with self._instance.measure_write("http"):
            if remaining_ttl > 0:
                await self._backend.put_instance(kind, server, remaining_ttl)
            else:
                await self._backend.delete_instance(kind, server.metadata.name)
        return _OK

    async def _get_proxies(self) -> list[Document]:
        return [_server_document(server) for server in await self._backend.list_instances("proxy")]

    async def _get_auth_servers(self) -> list[Document]:
        return [_server_document(server) for server in await self._backend.list_instances("auth")]

    async def _delete_proxy(self, caller: Caller | None, name: str) -> Document:
        self._require_identity(caller, "proxy", name)
        with self._instance.measure_write("http"):
            if not await self._backend.delete_instance("proxy", name):
                raise HTTPError(404, f"proxy {name!r} was not found")
        return _OK

    async def _delete_all_proxies(self) -> Document:
        with self._instance.measure_write("http"):
            for server in await self._backend.list_instances("proxy"):
                await self._backend.delete_instance("proxy", server.metadata.name)
        return _OK

    async def _upsert_tunnel_connection(self, body: Document) -> Document:
        connection = body.get("tunnel_connection")
        if not isinstance(connection, dict):
            raise HTTPError(400, "tunnel_connection: missing")
        metadata, spec = connection.setdefault("metadata", {}), connection.setdefault("spec", {})
        if not isinstance(metadata, dict) or not isinstance(spec, dict):
            raise HTTPError(400, "tunnel_connection: metadata and spec must be objects")
        if connection.setdefault("kind", "tunnel_connection") != "tunnel_connection":
            raise HTTPError(400, f"kind: must be 'tunnel_connection', not {connection['kind']!r}")
        if not connection.get("version"):
            raise HTTPError(400, "version: missing")
        name = _check_name(metadata.get("name"), "metadata.name")
        cluster = _check_name(spec.get("cluster_name"), "spec.cluster_name")
        _check_name(spec.get("proxy_name"), "spec.proxy_name")
        connection["sub_kind"] = cluster
        now = time.time()
        expires = _read_timestamp(metadata.get("expires"), "metadata.expires")
        if not expires.seconds:
            # As in Teleport: the default TTL of an instance, counted from the last heartbeat.
            last_heartbeat_at = (
                _read_timestamp(spec.get("last_heartbeat"), "spec.last_heartbeat").ToNanoseconds() / 1e9
            )
            expires.FromNanoseconds(
                durations.to_nanoseconds((last_heartbeat_at or now) + announce.DEFAULT_TTL)
            )
            metadata["expires"] = expires.ToJsonString()
        body_bytes, remaining_ttl = (
            json.dumps(connection, separators=(",", ":")).encode(),
            _remaining_ttl_of(expires, now),
        )
        with self._instance.measure_write("http"):
            if remaining_ttl > 0:
                await self._backend.put_tunnel_connection(cluster, name, body_bytes, remaining_ttl)
            else:
                await self._backend.delete_tunnel_connection(cluster, name)
        return _OK

    async def _get_tunnel_connections(self, cluster: str = "") -> list[Document]:
        connections = [json.loads(body) for body in await self._backend.list_tunnel_connections()]
        return [
            connection
            for connection in connections
            if not cluster or connection["spec"]["cluster_name"] == cluster
        ]

    async def _delete_tunnel_connection(self, cluster: str, name: str) -> Document:
        with self._instance.measure_write("http"):
            if not await self._backend.delete_tunnel_connection(cluster, name):
                raise HTTPError(404, f"tunnel connection {name!r} of cluster {cluster!r} was not found")
        return _OK

    async def _delete_tunnel_connections(self, cluster: str) -> Document:
        for connection in await self._get_tunnel_connections(cluster):
            with self._instance.measure_write("http"):
                await self._backend.delete_tunnel_connection(cluster, connection["metadata"]["name"])
        return _OK


_OK: Document = {"message": "ok"}


def _route(
    method: str, path: str, call: str, handler: Callable[..., Awaitable[Any]], *, takes_caller: bool = False
) -> _Route:
    return _Route(method, re.compile(f"/v[0-9]+/{path}"), call, handler, takes_caller)


async def _read_document(receive: Receive) -> Document:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HTTPError(400, "the client closed the connection before the body was complete")
        body += message.get("body", b"")
        if len(body) > _MAX_BODY_BYTES:
            raise HTTPError(413, f"the body is larger than {_MAX_BODY_BYTES} bytes")
        if not message.get("more_body"):
            break
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPError(400, f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise HTTPError(400, "the body must be a JSON object")
    return document


def _check_name(name: object, field_path: str) -> str:
    if not isinstance(name, str) or len(name) > LONGEST_ID or not _NAME.fullmatch(name):
        raise HTTPError(
            400, f"{field_path}: must be 1 to {LONGEST_ID} letters, digits, or characters of . _ @ -"
        )
    return name


def _read_server(kind: AuthOrProxy, document: object) -> types_pb2.ServerV2:
    if not isinstance(document, dict):
        raise HTTPError(400, "server: missing")
    try:
        # Unknown fields may come from a newer Teleport.
        server = json_format.ParseDict(document, types_pb2.ServerV2(), ignore_unknown_fields=True)
    except (json_format.ParseError, RecursionError) as error:
        raise HTTPError(400, f"server: {error}") from None
    if server.kind not in ("", _RESOURCE_KINDS[kind]):
        raise HTTPError(400, f"server.kind: must be {_RESOURCE_KINDS[kind]!r}, not {server.kind!r}")
    server.kind, server.version = _RESOURCE_KINDS[kind], "v2"
    server.metadata.namespace = server.metadata.namespace or "default"
    _check_name(server.metadata.name, "server.metadata.name")
    if refusal := instance_admission.resource_refusal_of(server):
        raise HTTPError(400, refusal)
    _check_address(server.spec.addr, "server.spec.addr")
    for label in (DIAG_LABEL, CONNECT_LABEL, HTTP_LABEL):
        if server.metadata.labels.get(label):
            _check_address(server.metadata.labels[label], f"server.metadata.labels[{label}]")
    return server


def _check_address(text: str, field_path: str) -> None:
    try:
        addresses.parse(text)
    except ValueError as error:
        raise HTTPError(400, f"{field_path}: {error}") from None


def _server_document(server: types_pb2.ServerV2) -> Document:
    return json_format.MessageToDict(server, preserving_proto_field_name=True)


def _read_ttl(body: Document) -> float:
    """Return the TTL of a request (nanoseconds there) in seconds; 0 if the request has none."""
    ttl = body.get("ttl", 0)
    if (
        not isinstance(ttl, int)
        or isinstance(ttl, bool)
        or not 0 <= ttl <= _LONGEST_TTL * durations.NANOSECONDS_PER_SECOND
    ):
        raise HTTPError(400, f"ttl: must be in nanoseconds, from 0 to one day, not {ttl!r}")
    return durations.from_nanoseconds(ttl)


def _remaining_ttl_of(expires: Timestamp, now: float) -> float:
    """Return how long a resource still lives, in seconds: the default TTL if it has none, 0 if it has expired.

    Less than a millisecond counts as expired, so that nobody lists an expired resource.
    """
    if not expires.seconds:
        return announce.DEFAULT_TTL
    remaining_ttl = expires.ToNanoseconds() / 1e9 - now
    return min(remaining_ttl, _LONGEST_TTL) if remaining_ttl >= _SHORTEST_TTL else 0.0


def _read_timestamp(timestamp: object, field_path: str) -> Timestamp:
    """Return a timestamp of a document; 0 if it has none, or Go's zero time."""
    at = Timestamp()
    if timestamp in (None, "", "0001-01-01T00:00:00Z"):
        return at
    try:
        at.FromJsonString(str(timestamp))
    except ValueError as error:
        raise HTTPError(400, f"{field_path}: {error}") from None
    return at
