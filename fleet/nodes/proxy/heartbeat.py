"""Heartbeats of a proxy through auths: UpsertProxy and DeleteProxy of the HTTP part of the auth API.

RFD 226, "Auth HTTP Clients". One connection is kept open. It moves to another auth when the auth responds with
`Connection: close`, and after a failure. `auth_choice` decides which auth is next, and when.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import aiohttp
from google.protobuf import json_format
from prometheus_client import Counter

from fleet.nodes.shared import addresses, lifecycle
from fleet.nodes.shared.instance import AuthsUnavailableError, Instance
from fleet.protocol import durations
from fleet.protocol.instance_labels import HTTP_LABEL
from fleet.protocol.recovery.auth_choice import AuthChoice, max_requests, request_timeout
from fleet.transport.tls import AUTH_SERVER_NAME, TLSError, client_context
from fleet.wire import types_pb2

log = logging.getLogger(__name__)

#: Seconds for which an idle connection is kept. Auths keep theirs for 120 s, so heartbeats do not meet a closed one.
_IDLE_TIMEOUT = 100.0
#: Seconds that a starting proxy waits for the first auth.
_START_TIMEOUT = 30.0
#: Timeout of deregistration, seconds.
_DELETE_WITHIN = 2.0
#: Most bytes read of a response: an auth sends a short message at most.
_MAX_RESPONSE_BYTES = 65536
#: Most characters of an auth's error message that are repeated.
_LONGEST_SENTENCE = 300


@dataclass(frozen=True, slots=True)
class HeartbeatFlags:
    """How a proxy sends its heartbeats."""

    #: False: the proxy writes its resource to the backend itself.
    through_auth: bool = True
    #: HTTP addresses of auths; empty: those that auths advertise in the backend.
    auth_addresses: tuple[tuple[str, int], ...] = ()


class _RequestError(Exception):
    """An auth did not do what was requested. The message says why."""


class AuthPresence:
    """Registration of a proxy through an auth: an `instance.Presence`."""

    first_heartbeat_timeout = _START_TIMEOUT

    def __init__(self, instance: Instance, auth_addresses: Sequence[tuple[str, int]] = ()) -> None:
        """Raises NodeStartError if the TLS files cannot be used."""
        self._instance = instance
        self._fixed_addresses = tuple(addresses.join(*address) for address in auth_addresses)
        self._choice = AuthChoice()
        #: Address of the auth that accepted the last heartbeat.
        self._last_auth_address: str | None = None
        self._ttl = instance.flags.announce_ttl
        self._session: aiohttp.ClientSession | None = None
        try:
            self._tls_context = client_context(instance.flags.tls)
        except TLSError as error:
            raise lifecycle.NodeStartError(str(error)) from None
        self._requests = Counter(
            "refloat_proxy_heartbeats",
            "Heartbeat requests of this proxy to auths, by outcome",
            ["outcome"],
            registry=instance.registry,
        )

    @property
    def auth(self) -> str | None:
        """Address of the auth with the connection; None without a connection."""
        return self._choice.current_address

    async def put(self, server: types_pb2.ServerV2) -> None:
        """Have an auth write the resource. Raises BackendUnavailableError."""
        body = {
            "server": json_format.MessageToDict(server, preserving_proto_field_name=True),
            "ttl": durations.to_nanoseconds(self._ttl),
        }
        await self._send_to_any_auth("POST", "/v2/proxies", json.dumps(body, separators=(",", ":")).encode())

    async def delete(self) -> None:
        """Have an auth delete the resource. Raises BackendUnavailableError."""
        path = f"/v2/proxies/{quote(self._instance.flags.id, safe='')}"
        try:
            async with asyncio.timeout(_DELETE_WITHIN):
                await self._send_to_any_auth("DELETE", path, None)
        except TimeoutError:
            raise AuthsUnavailableError("no auth deregistered this proxy in time") from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send_to_any_auth(self, method: str, path: str, body: bytes | None) -> None:
        """Send a request to one auth after the other until one accepts it. Raises BackendUnavailableError."""
        # Reading the backend is also a check: a proxy that cannot read it has no list of proxies for its agents, so a
        # heartbeat that succeeded would keep the agents on this proxy.
        self._choice.update(await self._read_auth_addresses())
        reason = "no auth in the backend advertises an HTTP port"
        for address in self._choice.addresses_to_try(
            time.monotonic(), random.random, max_requests(self._ttl)
        ):
            try:
                is_closing = await self._send_to_auth(address, method, path, body)
            except _RequestError as error:
                self._requests.labels("failed").inc()
                self._choice.record_failure(address, time.monotonic(), random.random())
                reason = f"auth {address}: {error}"
                log.info("heartbeat.refused: %s", reason)
                continue
            self._requests.labels("closed" if is_closing else "accepted").inc()
            self._choice.record_success(address, time.monotonic(), random.random(), is_closing=is_closing)
            if self._last_auth_address not in (None, address):
                log.info("heartbeat.moved: from auth %s to auth %s", self._last_auth_address, address)
            self._last_auth_address = address
            return
        raise AuthsUnavailableError(f"no auth accepted the heartbeat: {reason}")

    async def _read_auth_addresses(self) -> Sequence[str]:
        servers = await self._instance.backend.list_instances("auth")
        if self._fixed_addresses:
            return self._fixed_addresses
        labels = ((server, server.metadata.labels.get(HTTP_LABEL, "")) for server in servers)
        return [
            addresses.join(*address)
            for server, label in labels
            if label and (address := self._instance.parse_resource_address(server, label))
        ]

    async def _send_to_auth(self, address: str, method: str, path: str, body: bytes | None) -> bool:
        """Send a request; return whether the auth closed the connection. Raises _RequestError."""
        timeout = request_timeout(self._ttl)
        try:
            async with asyncio.timeout(timeout):
                try:
                    return await self._exchange(address, method, path, body)
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                    if isinstance(error, aiohttp.ClientConnectorError):
                        raise
                    # The kept connection was closed meanwhile. Repeating the request is harmless.
                    return await self._exchange(address, method, path, body)
        except TimeoutError:
            raise _RequestError(f"no response within {durations.format_seconds(timeout)}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _RequestError(str(error) or type(error).__name__) from None

    async def _exchange(self, address: str, method: str, path: str, body: bytes | None) -> bool:
        scheme = "http" if self._tls_context is None else "https"
        headers = {} if body is None else {"Content-Type": "application/json"}
        tls = self._instance.flags.tls
        async with self._ensure_session().request(
            method,
            f"{scheme}://{address}{path}",
            data=body,
            headers=headers,
            ssl=self._tls_context if self._tls_context is not None else True,
            # A proxy or a gateway must not be taken for an auth.
            server_hostname=(tls.auth_name or AUTH_SERVER_NAME) if self._tls_context is not None else None,
            allow_redirects=False,
        ) as response:
            text = await _read_body(response)
            if response.status == 200 or (method == "DELETE" and response.status == 404):
                return "close" in response.headers.get("Connection", "").lower()
            # Behind a load balancer, the next connection may lead to another auth.
            response.close()
            raise _RequestError(f"HTTP {response.status}: {_error_message_of(text)}")

    def _ensure_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # This class has its own timeouts: a repeated request shares one limit with the first.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(keepalive_timeout=_IDLE_TIMEOUT),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    """Read a response to its end, so that the connection can be reused. Raises _RequestError if it is too long."""
    body = b""
    async for part in response.content.iter_any():
        body += part
        if len(body) > _MAX_RESPONSE_BYTES:
            response.close()
            raise _RequestError(f"the response is larger than {_MAX_RESPONSE_BYTES // 1024} KiB")
    return body


def _error_message_of(body: bytes) -> str:
    """Return the error message of an auth's response, or else the beginning of its body."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, RecursionError, KeyError, TypeError):
        message = body.decode(errors="replace")
    text = "".join(mark if mark.isprintable() else " " for mark in str(message))
    return text[:_LONGEST_SENTENCE]
