"""Proxy peering: a proxy without a tunnel to an agent reaches it through a proxy that has one.

Agents report in their heartbeats which proxies they have tunnels to, so the backend knows where an agent is. The user's
request is forwarded to the CONNECT port of such a proxy and marked as a peer's. A marked request is served from the
proxy's own tunnels or refused, so no request goes in circles. A peer authenticates like a user, by certificate or
token.
"""

from __future__ import annotations

import random
import ssl
from dataclasses import dataclass

from fleet.nodes.shared import connect_client, flags
from fleet.nodes.shared.connect_client import ConnectError, ConnectPlan, NoTunnelError
from fleet.nodes.shared.instance import Instance
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.protocol.instance_labels import CONNECT_LABEL
from fleet.protocol.tunnel.connect import RefusalReason, RefusedError, ServiceTarget
from fleet.transport.backend import BackendUnavailableError
from fleet.transport.tls import TLSError, client_context
from fleet.transport.tunnel.pump import TcpConnection

_REASON_BY_STATUS = {reason.status: reason for reason in RefusalReason}
#: Refusals that are about this proxy's configuration and not about the user.
_ADMISSION_REASONS = (RefusalReason.UNAUTHENTICATED, RefusalReason.FORBIDDEN)


@dataclass(frozen=True, slots=True)
class _Peer:
    name: str
    address: tuple[str, int]


class Peers:
    """The other proxies of a proxy."""

    def __init__(self, instance: Instance, token: str) -> None:
        """`token` authenticates this proxy to its peers. Raises NodeStartError."""
        self._instance = instance
        self._token = token
        self._tls_context: ssl.SSLContext | None
        try:
            self._tls_context = client_context(instance.flags.tls)
        except TLSError as error:
            raise NodeStartError(str(error)) from None

    async def dial(self, service_target: ServiceTarget) -> TcpConnection:
        """Connect to a service of an agent that has no tunnel here. Raises RefusedError."""
        no_tunnel = f"agent {service_target.agent!r} has no tunnel to this proxy"
        try:
            peers = await self._find_peers_with_tunnel(service_target.agent)
        except BackendUnavailableError as error:
            raise RefusedError(
                RefusalReason.NO_AGENT, f"{no_tunnel}, and the backend cannot be read: {error}"
            ) from None
        if peers is None:
            raise RefusedError(
                RefusalReason.NO_AGENT,
                f"agent {service_target.agent!r} was not found: check its name or id (refloat agents)",
            )
        reason = f"agent {service_target.agent!r} has no tunnel to a proxy with a CONNECT port"
        random.shuffle(peers)
        for peer in peers:
            try:
                return await self._dial(peer, service_target)
            except NoTunnelError as error:
                reason = f"{no_tunnel}, and proxy {peer.name} responded: {error}"
            except ConnectError as error:
                raise self._refusal_of(peer, error) from None
        raise RefusedError(RefusalReason.NO_AGENT, reason)

    async def _dial(self, peer: _Peer, service_target: ServiceTarget) -> TcpConnection:
        plan = ConnectPlan(
            f"{service_target.service}.{service_target.agent}",
            (peer.address,),
            token=self._token,
            tls=self._instance.flags.tls,
            peer_id=self._instance.flags.id,
        )
        return await connect_client.dial(plan, self._tls_context)

    def _refusal_of(self, peer: _Peer, error: ConnectError) -> RefusedError:
        reason = _REASON_BY_STATUS.get(error.status, RefusalReason.PEER)
        if reason in _ADMISSION_REASONS:
            return RefusedError(RefusalReason.PEER, f"proxy {peer.name} does not admit this proxy: {error}")
        return RefusedError(reason, str(error))

    async def _find_peers_with_tunnel(self, agent: str) -> list[_Peer] | None:
        """Return the proxies with a tunnel to the agent; None if the backend has no such agent.

        The agent is given by its id, or by the name that the id is derived from. Raises BackendUnavailableError.
        """
        backend, own_flags = self._instance.backend, self._instance.flags
        for agent_id in dict.fromkeys((agent, *(self._agent_id_of(name) for name in (agent, agent.lower())))):
            entry = await backend.get_agent(agent_id)
            if entry is not None:
                break
        else:
            return None
        claimed_ids = set(entry.agent.tracker.claimed) - {own_flags.id}
        return [
            _Peer(server.spec.hostname, address)
            for server in await backend.list_instances("proxy")
            if server.metadata.name in claimed_ids
            and (label := server.metadata.labels.get(CONNECT_LABEL))
            and (address := self._instance.parse_resource_address(server, label))
        ]

    def _agent_id_of(self, name: str) -> str:
        return flags.host_id(self._instance.flags.cluster, "agent", name)
