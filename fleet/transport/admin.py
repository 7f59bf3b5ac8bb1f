"""Clients for writes to instances: the networking config of a cluster (through any of its auths), reconnect advice of a
proxy to its agents, declared status (drain, degrade), and env policies.

The networking config client works with our auths and with Teleport's: it sends back the whole message that it read,
including fields that it does not know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
import grpc.aio

from fleet.protocol.networking.config import NetworkingResource
from fleet.transport import networking_config
from fleet.transport.networking_config import Message
from fleet.wire import clusterconfig_pb2, clusterconfig_pb2_grpc, fleet_pb2, fleet_pb2_grpc

T = TypeVar("T")

#: Timeout in seconds: an auth answers within a second even without its backend.
_WITHIN = 5.0


class AdminError(Exception):
    """A write that was not done; the message says why."""


class RejectedError(AdminError):
    """The auth rejects the value; the message names the field."""


class RevisionConflictError(AdminError):
    """Out of date: another client wrote since the last read. Read again and review the new values."""


class UnreachableError(AdminError):
    """The auth or its backend does not answer. The write may have taken effect."""


class NotAllowedError(AdminError):
    """This client's certificate does not permit the action."""


_ERROR_BY_STATUS_CODE: dict[grpc.StatusCode, type[AdminError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: RejectedError,
    grpc.StatusCode.UNIMPLEMENTED: RejectedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: RevisionConflictError,
    grpc.StatusCode.FAILED_PRECONDITION: RevisionConflictError,
    grpc.StatusCode.ABORTED: RevisionConflictError,
    grpc.StatusCode.UNAVAILABLE: UnreachableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: UnreachableError,
    grpc.StatusCode.PERMISSION_DENIED: NotAllowedError,
    grpc.StatusCode.UNAUTHENTICATED: NotAllowedError,
}


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """A networking config as stored by an auth."""

    resource: NetworkingResource
    #: The whole message. Keep it with the resource: an update needs both.
    raw: bytes

    @classmethod
    def of(cls, message: Message) -> StoredConfig:
        """Return the stored config of a message."""
        return cls(networking_config.read(message), message.SerializeToString())


class NetworkingConfigClient:
    """Client that reads and writes the networking config. Every call raises AdminError."""

    def __init__(self, channel: grpc.aio.Channel, *, within: float = _WITHIN) -> None:
        self._stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        self._within = within

    async def get(self) -> StoredConfig:
        """Return the stored config."""
        request = clusterconfig_pb2.GetClusterNetworkingConfigRequest()
        return await self._call(self._stub.GetClusterNetworkingConfig(request, timeout=self._within))

    async def update(self, stored_config: StoredConfig, desired_config: NetworkingResource) -> StoredConfig:
        """Write `desired_config` in place of `stored_config`; return the new config.

        Raises RevisionConflictError if `stored_config` is out of date.
        """
        request = clusterconfig_pb2.UpdateClusterNetworkingConfigRequest(
            cluster_network_config=_build_update_message(stored_config, desired_config)
        )
        return await self._call(self._stub.UpdateClusterNetworkingConfig(request, timeout=self._within))

    async def reset(self) -> StoredConfig:
        """Restore the defaults. Raises RejectedError when the config comes from the auths' configuration file."""
        request = clusterconfig_pb2.ResetClusterNetworkingConfigRequest()
        return await self._call(self._stub.ResetClusterNetworkingConfig(request, timeout=self._within))

    async def _call(self, call: Awaitable[Message]) -> StoredConfig:
        return StoredConfig.of(await _await_response(call))


@dataclass(frozen=True, slots=True)
class ReconnectAdviceResult:
    """Result of reconnect advice by a proxy: counts of tunnels."""

    proxy_id: str
    #: Advised by this call, and by earlier calls with the same advisory id.
    advised_count: int
    already_advised_count: int
    #: Not advised yet, because of the limit.
    remaining_count: int
    #: Requested agents without a tunnel to the proxy.
    absent_count: int
    #: Agents that answered that they have no other proxy or auth to connect to.
    staying_count: int
    #: Ids of the staying agents, and of the requested agents without a tunnel to the proxy.
    staying_ids: tuple[str, ...] = ()
    absent_ids: tuple[str, ...] = ()
    #: For advice to connect to another auth: agents that moved, agents that were not connected to the auth to leave,
    #: and the reason of each staying agent, by id.
    moved_count: int = 0
    elsewhere_count: int = 0
    staying_reasons: Mapping[str, str] = field(default_factory=dict)


class TunnelAdminClient:
    """Client that makes agents leave a proxy, or an auth that they reach through it. Every call raises AdminError."""

    def __init__(self, channel: grpc.aio.Channel, *, within: float = _WITHIN) -> None:
        self._stub = fleet_pb2_grpc.TunnelAdminStub(channel)
        self._within = within

    async def advise_reconnect(
        self,
        advisory_id: str,
        reason: str,
        *,
        agent_ids: Collection[str] = (),
        limit: int = 0,
        dry_run: bool = False,
    ) -> ReconnectAdviceResult:
        """Advise agents (all if none are given) to reconnect, make before break; at most `limit` now (0: all).

        A repeated `advisory_id` advises only agents that were not advised yet; `dry_run` only counts.
        """
        request = fleet_pb2.AdviseReconnectRequest(
            advisory_id=advisory_id, reason=reason, agent_ids=list(agent_ids), limit=limit, dry_run=dry_run
        )
        return await self._call(self._stub.AdviseReconnect(request, timeout=self._within))

    async def advise_auth_reconnect(
        self,
        advisory_id: str,
        reason: str,
        leave_auth_id: str = "",
        *,
        agent_ids: Collection[str] = (),
        limit: int = 0,
        dry_run: bool = False,
    ) -> ReconnectAdviceResult:
        """Advise agents (all if none are given) to connect to another auth than `leave_auth_id`, make before break.

        An empty `leave_auth_id` means the auth that each agent is connected to. For ids see `advise_reconnect`.
        """
        request = fleet_pb2.AdviseAuthReconnectRequest(
            advisory_id=advisory_id,
            reason=reason,
            leave_auth_id=leave_auth_id,
            agent_ids=list(agent_ids),
            limit=limit,
            dry_run=dry_run,
        )
        return await self._call(self._stub.AdviseAuthReconnect(request, timeout=self._within))

    async def _call(self, call: Awaitable[fleet_pb2.AdviseReconnectResponse]) -> ReconnectAdviceResult:
        response = await _await_response(call)
        return ReconnectAdviceResult(
            response.proxy_id,
            response.advised_count,
            response.already_advised_count,
            response.remaining_count,
            response.absent_count,
            response.staying_count,
            tuple(response.staying_ids),
            tuple(response.absent_ids),
            response.moved_count,
            response.elsewhere_count,
            dict(response.staying_reasons),
        )


class InstanceAdminClient:
    """Client that drains or degrades one auth or proxy. Every call raises AdminError."""

    def __init__(self, channel: grpc.aio.Channel, *, within: float = _WITHIN) -> None:
        self._stub = fleet_pb2_grpc.InstanceAdminStub(channel)
        self._within = within

    async def drain(self, reason: str) -> None:
        """Drain the instance: it takes no new connections and keeps existing ones."""
        await self._set_declared_status(fleet_pb2.SetDeclaredStatusRequest.DECLARATION_DRAIN, reason)

    async def undrain(self) -> None:
        """Undrain the instance: it takes new connections again."""
        await self._set_declared_status(fleet_pb2.SetDeclaredStatusRequest.DECLARATION_UNDRAIN)

    async def degrade(self, reason: str, duration: float = 0.0) -> None:
        """Mark the instance as degraded for `duration` seconds, so that others are preferred.

        0: until it is cleared.
        """
        await self._set_declared_status(
            fleet_pb2.SetDeclaredStatusRequest.DECLARATION_DEGRADE, reason, duration
        )

    async def restore(self) -> None:
        """Clear the degraded mark of the instance."""
        await self._set_declared_status(fleet_pb2.SetDeclaredStatusRequest.DECLARATION_RESTORE)

    async def _set_declared_status(
        self,
        declaration: fleet_pb2.SetDeclaredStatusRequest.Declaration,
        reason: str = "",
        duration: float = 0.0,
    ) -> None:
        request = fleet_pb2.SetDeclaredStatusRequest(
            declaration=declaration, reason=reason, duration_ms=round(duration * 1000)
        )
        await _await_response(self._stub.SetDeclaredStatus(request, timeout=self._within))


class NodePoliciesClient:
    """Client that writes the env policies of one auth or proxy; `monitoring.sources.policies` reads them."""

    def __init__(self, channel: grpc.aio.Channel, *, within: float = _WITHIN) -> None:
        self._stub = fleet_pb2_grpc.NodePoliciesStub(channel)
        self._within = within

    async def set(self, revision: str, policy_values: Mapping[str, str]) -> str:
        """Set the policies for the instance's next start to exactly `policy_values`; return their revision.

        Raises RevisionConflictError when its accepted policies do not have `revision`, or when it has no data folder to
        store them.
        """
        request = fleet_pb2.SetPoliciesRequest(revision=revision, values=dict(policy_values))
        response = await _await_response(self._stub.SetPolicies(request, timeout=self._within))
        return str(response.revision)

    async def restart(self, run_id: str, reason: str, drain_seconds: float = 0.0) -> None:
        """Restart the instance gracefully; `drain_seconds` is 0 for the instance's own setting.

        Raises RevisionConflictError when another run than `run_id` is active, so a repeated call never restarts twice.
        """
        request = fleet_pb2.RestartRequest(run_id=run_id, reason=reason, drain_ms=round(drain_seconds * 1000))
        await _await_response(self._stub.Restart(request, timeout=self._within))


async def _await_response(call: Awaitable[T]) -> T:
    """Return the result of a call. Raises AdminError."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        kind = _ERROR_BY_STATUS_CODE.get(error.code(), AdminError)
        raise kind(error.details() or error.code().name) from None


def _build_update_message(stored_config: StoredConfig, desired_config: NetworkingResource) -> Message:
    message = Message.FromString(stored_config.raw)
    networking_config.write(desired_config.config, message)
    networking_config.write_metadata(desired_config, message)
    return message
