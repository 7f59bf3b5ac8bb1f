"""Connections of agents to auths through a proxy: each goes to one auth, preferably a ready one.

The proxy copies bytes unchanged. With TLS, the agent's handshake is with the auth, and the proxy cannot read the
content.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
from prometheus_client import Counter

from fleet.nodes.shared.instance import Instance
from fleet.protocol.instance_labels import DIAG_LABEL
from fleet.protocol.recovery import auth_path
from fleet.protocol.tunnel.messages import Target, TunnelError
from fleet.transport.backend import BackendUnavailableError
from fleet.transport.tunnel.handlers import AcceptedSession, FunctionSession, dial
from fleet.transport.tunnel.pump import SessionPolicy
from fleet.transport.tunnel.stream import TunnelStream

#: Seconds for which the list of auths is cached: 1,000 agents that connect at once need only one lookup.
_REFRESH_INTERVAL = 0.5
#: Timeout of `/readyz`, seconds. An auth that does not respond in time is not ready.
_READYZ_TIMEOUT = 0.5
_DIAL_TIMEOUT = 2.0
_POLICY = SessionPolicy()


@dataclass(frozen=True, slots=True)
class _Auth:
    address: tuple[str, int]
    is_ready: bool


class AuthSessionHandler:
    """Accepts sessions to the targets `_auth` and `_proxy`."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._auths: Sequence[_Auth] = ()
        self._refreshed_at = -_REFRESH_INTERVAL
        self._refresh_task: asyncio.Task[None] | None = None
        self._connections = Counter(
            "refloat_proxy_auth_connections",
            "Agents' connections to auths through this proxy",
            ["outcome"],
            registry=instance.registry,
        )

    async def accept_session(self, target: Target) -> AcceptedSession:
        """Accept a session. Raises TunnelError if no auth can be reached."""
        if target == auth_path.PROXY_ID_TARGET:
            return FunctionSession(self._send_proxy_id)
        reason = "no auth is known"
        for auth in await self._shuffle_auths():
            try:
                session = await dial(*auth.address, _POLICY, within=_DIAL_TIMEOUT)
            except TunnelError as error:
                reason = str(error)
                continue
            self._connections.labels("connected").inc()
            return session
        self._connections.labels("refused").inc()
        raise TunnelError(f"cannot reach an auth: {reason}")

    async def _send_proxy_id(self, stream: TunnelStream) -> None:
        await stream.write(self._instance.flags.id.encode())
        await stream.close()

    async def _shuffle_auths(self) -> list[_Auth]:
        """Return the auths in random order, ready ones first. Others are tried too, because a probe may be wrong."""
        if time.monotonic() - self._refreshed_at >= _REFRESH_INTERVAL:
            if self._refresh_task is None or self._refresh_task.done():
                self._refresh_task = asyncio.create_task(self._refresh_auths(), name="look for auths")
            await asyncio.shield(self._refresh_task)
        shuffled_auths = random.sample(self._auths, len(self._auths))
        return sorted(shuffled_auths, key=lambda auth: not auth.is_ready)

    async def _refresh_auths(self) -> None:
        try:
            servers = await self._instance.backend.list_instances("auth")
        except BackendUnavailableError:
            endpoints = [
                (auth.address, "") for auth in self._auths
            ]  # the cached ones: connections to them do not need the backend
        else:
            endpoints = [
                (address, server.metadata.labels.get(DIAG_LABEL, ""))
                for server in servers
                if (address := self._instance.parse_resource_address(server, server.spec.addr))
            ]
        timeout = aiohttp.ClientTimeout(total=_READYZ_TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            ready = await asyncio.gather(*(_is_ready(session, diag) for _, diag in endpoints))
        self._auths = [
            _Auth(address, is_ready) for (address, _), is_ready in zip(endpoints, ready, strict=True)
        ]
        self._refreshed_at = time.monotonic()


async def _is_ready(session: aiohttp.ClientSession, diag: str) -> bool:
    if not diag:
        return False
    try:
        async with session.get(f"http://{diag}/readyz") as response:
            return response.status == 200
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):  # ValueError: an invalid address
        return False
