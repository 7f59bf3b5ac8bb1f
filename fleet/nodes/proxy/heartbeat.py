"""A proxy's heartbeats through auths: UpsertProxy and DeleteProxy of the HTTP part of the auth API.

RFD 226, "Auth HTTP Clients". One connection is kept alive; it moves to another auth when the auth answers
`Connection: close`, and after a failure. Which auth is next, and when, decides `auth_choice`.
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

from fleet.nodes.shared import addresses, connect_client, lifecycle
from fleet.nodes.shared.instance import AuthsUnavailable, Instance
from fleet.protocol import durations
from fleet.protocol.instance_labels import HTTP_LABEL
from fleet.protocol.recovery.auth_choice import AuthChoice, most_requests, time_limit
from fleet.transport.tls import AUTH_NAME, TLSError
from fleet.wire import types_pb2

log = logging.getLogger(__name__)

#: Shorter than an auth keeps an idle connection (120 s), so that a heartbeat does not meet its end. Seconds.
_IDLE_TIMEOUT = 100.0
#: How long a proxy that starts waits for the first auth, seconds.
_PATIENCE = 30.0
#: How long deregistration may take in all, seconds.
_DELETE_WITHIN = 2.0
#: Bytes of an answer that are read: an auth answers with a sentence at most.
_MAX_RESPONSE_BYTES = 65536
#: Characters of a sentence of an auth that are repeated.
_LONGEST_SENTENCE = 300


@dataclass(frozen=True, slots=True)
class HeartbeatFlags:
    """How a proxy heartbeats."""

    #: False: it writes its resource to the backend itself.
    through_auth: bool = True
    #: HTTP ports of auths; none: those that the auths in the backend advertise.
    auths: tuple[tuple[str, int], ...] = ()


class _RequestError(Exception):
    """An auth did not do what was asked of it; the sentence says why."""


class AuthPresence:
    """The resource of a proxy, written by an auth. It is an `instance.Presence`."""

    patience = _PATIENCE

    def __init__(self, instance: Instance, auths: Sequence[tuple[str, int]] = ()) -> None:
        """Make it. Raises StartError when the files of TLS cannot be used."""
        self._instance = instance
        self._fixed_addresses = tuple(addresses.join(*address) for address in auths)
        self._choice = AuthChoice()
        #: Address of the auth that took the last heartbeat.
        self._last_address: str | None = None
        self._ttl = instance.flags.announce_ttl
        self._session: aiohttp.ClientSession | None = None
        try:
            self._context = connect_client.client_context(instance.flags.tls)
        except TLSError as error:
            raise lifecycle.NodeStartError(str(error)) from None
        self._requests = Counter(
            "refloat_proxy_heartbeats",
            "Requests by which this proxy heartbeats through auths",
            ["outcome"],
            registry=instance.registry,
        )

    @property
    def auth(self) -> str | None:
        """Address of the auth that has the connection; None while none has."""
        return self._choice.current

    async def put(self, server: types_pb2.ServerV2) -> None:
        """Have an auth write the resource. Raises BackendUnavailable."""
        body = {
            "server": json_format.MessageToDict(server, preserving_proto_field_name=True),
            "ttl": durations.to_nanoseconds(self._ttl),
        }
        await self._send("POST", "/v2/proxies", json.dumps(body, separators=(",", ":")).encode())

    async def delete(self) -> None:
        """Have an auth delete the resource. Raises BackendUnavailable."""
        path = f"/v2/proxies/{quote(self._instance.flags.id, safe='')}"
        try:
            async with asyncio.timeout(_DELETE_WITHIN):
                await self._send("DELETE", path, None)
        except TimeoutError:
            raise AuthsUnavailable("no auth deleted the resource in time") from None

    async def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send(self, method: str, path: str, body: bytes | None) -> None:
        """Ask one auth after the other until one does it. Raises BackendUnavailable."""
        # Not only for the addresses: a proxy that cannot read the backend has no list of proxies for its agents, so a
        # heartbeat that goes on would keep them on it.
        self._choice.update(await self._list_auths())
        reason = "no auth in the backend advertises an HTTP port"
        for address in self._choice.attempts(time.monotonic(), random.random, most_requests(self._ttl)):
            try:
                closes = await self._request(address, method, path, body)
            except _RequestError as error:
                self._requests.labels("failed").inc()
                self._choice.record_failure(address, time.monotonic(), random.random())
                reason = f"auth {address}: {error}"
                log.info("heartbeat.not-taken: %s", reason)
                continue
            self._requests.labels("closed" if closes else "accepted").inc()
            self._choice.record_success(address, time.monotonic(), random.random(), is_closing=closes)
            if self._last_address not in (None, address):
                log.info("heartbeat.moved: from auth %s to auth %s", self._last_address, address)
            self._last_address = address
            return
        raise AuthsUnavailable(f"no auth takes the heartbeat: {reason}")

    async def _list_auths(self) -> Sequence[str]:
        servers = await self._instance.backend.instances("auth")
        if self._fixed_addresses:
            return self._fixed_addresses
        labels = ((server, server.metadata.labels.get(HTTP_LABEL, "")) for server in servers)
        return [
            addresses.join(*address)
            for server, label in labels
            if label and (address := self._instance.address_in(server, label))
        ]

    async def _request(self, address: str, method: str, path: str, body: bytes | None) -> bool:
        """Return whether the auth ended the connection. Raises _RequestError."""
        limit = time_limit(self._ttl)
        try:
            async with asyncio.timeout(limit):
                try:
                    return await self._exchange(address, method, path, body)
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                    if isinstance(error, aiohttp.ClientConnectorError):
                        raise
                    # A connection that was kept ended meanwhile. The same request again does no harm.
                    return await self._exchange(address, method, path, body)
        except TimeoutError:
            raise _RequestError(f"no answer within {durations.format_seconds(limit)}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _RequestError(str(error) or type(error).__name__) from None

    async def _exchange(self, address: str, method: str, path: str, body: bytes | None) -> bool:
        scheme = "http" if self._context is None else "https"
        headers = {} if body is None else {"Content-Type": "application/json"}
        tls = self._instance.flags.tls
        async with self._open().request(
            method,
            f"{scheme}://{address}{path}",
            data=body,
            headers=headers,
            ssl=self._context if self._context is not None else True,
            # A proxy or a gateway must not answer in the place of an auth.
            server_hostname=(tls.auth_name or AUTH_NAME) if self._context is not None else None,
            allow_redirects=False,
        ) as response:
            text = await _read(response)
            if response.status == 200 or (method == "DELETE" and response.status == 404):
                return "close" in response.headers.get("Connection", "").lower()
            # Behind a load balancer the next connection may lead to another auth.
            response.close()
            raise _RequestError(f"{response.status} {_error_message_of(text)}")

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Timers are ours: a request that is repeated has one limit for both.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(keepalive_timeout=_IDLE_TIMEOUT),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Read an answer to its end, so that its connection can be used again. Raises _RequestError when it is too long."""
    text = b""
    async for part in response.content.iter_any():
        text += part
        if len(text) > _MAX_RESPONSE_BYTES:
            response.close()
            raise _RequestError(f"an answer of more than {_MAX_RESPONSE_BYTES // 1024} KiB")
    return text


def _error_message_of(body: bytes) -> str:
    """Return the sentence in an answer of the auth API, or the beginning of what was answered instead."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, RecursionError, KeyError, TypeError):
        message = body.decode(errors="replace")
    text = "".join(mark if mark.isprintable() else " " for mark in str(message))
    return text[:_LONGEST_SENTENCE]
