"""Clients for writes to a node: the networking config of a cluster, through any of its auths, a proxy's advice to
its agents to reconnect, and what an instance says of itself.

The first works with our auths and with Teleport's: what it reads it sends back whole, with the fields it does not know.
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

#: An auth answers within a second even without its backend.
_WITHIN = 5.0


class AdminError(Exception):
    """A write that was not done; the sentence says why."""


class RejectedError(AdminError):
    """The auth will not take it; the sentence names the field."""


class RevisionConflict(AdminError):
    """Somebody else wrote since it was read: read again, and see what they did."""


class UnreachableError(AdminError):
    """The auth, or its backend, does not answer. The write may have happened."""


class NotAllowedError(AdminError):
    """This certificate may not do that."""


_ERRORS: dict[grpc.StatusCode, type[AdminError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: RejectedError,
    grpc.StatusCode.UNIMPLEMENTED: RejectedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: RevisionConflict,
    grpc.StatusCode.FAILED_PRECONDITION: RevisionConflict,
    grpc.StatusCode.ABORTED: RevisionConflict,
    grpc.StatusCode.UNAVAILABLE: UnreachableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: UnreachableError,
    grpc.StatusCode.PERMISSION_DENIED: NotAllowedError,
    grpc.StatusCode.UNAUTHENTICATED: NotAllowedError,
}


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """A networking config as an auth holds it."""

    resource: NetworkingResource
    #: The whole message: keep it with what is derived from it, since an update is made of both.
    raw: bytes

    @classmethod
    def of(cls, message: Message) -> StoredConfig:
        """Take a message."""
        return cls(networking_config.read(message), message.SerializeToString())


class NetworkingConfigAdmin:
    """Reads and writes the networking config. Every call raises AdminError."""

    def __init__(self, channel: grpc.aio.Channel, *, within: float = _WITHIN) -> None:
        self._stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        self._within = within

    async def get(self) -> StoredConfig:
        """What is stored."""
        request = clusterconfig_pb2.GetClusterNetworkingConfigRequest()
        return await self._call(self._stub.GetClusterNetworkingConfig(request, timeout=self._within))

    async def update(self, stored_config: StoredConfig, desired_config: NetworkingResource) -> StoredConfig:
        """Change what was read into what is wanted. Raises Conflict when it is not what is stored any more."""
        request = clusterconfig_pb2.UpdateClusterNetworkingConfigRequest(
            cluster_network_config=_merge(stored_config, desired_config)
        )
        return await self._call(self._stub.UpdateClusterNetworkingConfig(request, timeout=self._within))

    async def reset(self) -> StoredConfig:
        """Go back to the defaults. Raises Refused when the config comes from the auths' file."""
        request = clusterconfig_pb2.ResetClusterNetworkingConfigRequest()
        return await self._call(self._stub.ResetClusterNetworkingConfig(request, timeout=self._within))

    async def _call(self, call: Awaitable[Message]) -> StoredConfig:
        return StoredConfig.of(await _answer(call))


@dataclass(frozen=True, slots=True)
class ReconnectAdvice:
    """What a proxy did about agents that are to reconnect elsewhere: counts of tunnels."""

    proxy_id: str
    #: By this call, and by earlier ones for the same intent.
    advised: int
    already: int
    #: Not yet, for the limit's sake.
    left: int
    #: Agents named that have no tunnel there.
    absent: int
    #: Who answered that they have nowhere to go.
    staying: int
    #: Their ids, and those of the agents named that have no tunnel there.
    staying_ids: tuple[str, ...] = ()
    absent_ids: tuple[str, ...] = ()
    #: Of advice to connect to another auth: how many did, how many were not connected to the auth to leave, and why
    #: agents stay, by id.
    moved: int = 0
    elsewhere: int = 0
    staying_reasons: Mapping[str, str] = field(default_factory=dict)


class TunnelAdmin:
    """Moves agents away from one proxy, or from an auth through their tunnels to it. Every call raises AdminError."""

    def __init__(self, channel: grpc.aio.Channel, *, within: float = _WITHIN) -> None:
        self._stub = fleet_pb2_grpc.TunnelAdminStub(channel)
        self._within = within

    async def advise_reconnect(
        self,
        advisory_id: str,
        reason: str,
        *,
        agents: Collection[str] = (),
        limit: int = 0,
        look_only: bool = False,
    ) -> ReconnectAdvice:
        """Have agents, all if none are named, reconnect elsewhere, make before break; at most `limit` now.

        `advisory_id` stands for one intent: repeated, it advises only who was not advised yet; with `look_only` nobody.
        """
        request = fleet_pb2.AdviseReconnectRequest(
            advisory_id=advisory_id, reason=reason, agent_ids=list(agents), limit=limit, look_only=look_only
        )
        return await self._call(self._stub.AdviseReconnect(request, timeout=self._within))

    async def advise_auth_reconnect(
        self,
        advisory_id: str,
        reason: str,
        leave_auth: str = "",
        *,
        agents: Collection[str] = (),
        limit: int = 0,
        look_only: bool = False,
    ) -> ReconnectAdvice:
        """Have agents, all if none are named, connect to another auth than `leave_auth`, make before break.

        Empty, that is the auth to which each is connected. As with `advise_reconnect`, an id stands for one intent.
        """
        request = fleet_pb2.AdviseAuthReconnectRequest(
            advisory_id=advisory_id,
            reason=reason,
            leave_auth_id=leave_auth,
            agent_ids=list(agents),
            limit=limit,
            look_only=look_only,
        )
        return await self._call(self._stub.AdviseAuthReconnect(request, timeout=self._within))

    async def _call(self, call: Awaitable[fleet_pb2.AdviseReconnectResponse]) -> ReconnectAdvice:
        response = await _answer(call)
        return ReconnectAdvice(
            response.proxy_id,
            response.advised,
            response.already,
            response.left,
            response.absent,
            response.staying,
            tuple(response.staying_ids),
            tuple(response.absent_ids),
            response.moved,
            response.elsewhere,
            dict(response.staying_reasons),
        )


class InstanceAdmin:
    """Has one auth or proxy say something of itself. Every call raises AdminError."""

    def __init__(self, channel: grpc.aio.Channel, *, within: float = _WITHIN) -> None:
        self._stub = fleet_pb2_grpc.InstanceAdminStub(channel)
        self._within = within

    async def drain(self, reason: str) -> None:
        """Have it take nobody new; who is there stays."""
        await self._set_status(fleet_pb2.SetStandingRequest.WORD_DRAIN, reason)

    async def undrain(self) -> None:
        """Have it take connections again."""
        await self._set_status(fleet_pb2.SetStandingRequest.WORD_UNDRAIN)

    async def degrade(self, reason: str, duration: float = 0.0) -> None:
        """Have others preferred to it, for so many seconds; 0: until that is taken back."""
        await self._set_status(fleet_pb2.SetStandingRequest.WORD_DEGRADE, reason, duration)

    async def restore(self) -> None:
        """Have it be like the others again."""
        await self._set_status(fleet_pb2.SetStandingRequest.WORD_RESTORE)

    async def _set_status(
        self, word: fleet_pb2.SetStandingRequest.Word, reason: str = "", duration: float = 0.0
    ) -> None:
        request = fleet_pb2.SetStandingRequest(word=word, reason=reason, lasts_ms=round(duration * 1000))
        await _answer(self._stub.SetStanding(request, timeout=self._within))


class NodePoliciesAdmin:
    """Changes what one auth or proxy runs with. Every call raises AdminError; `monitoring.sources.policies` reads."""

    def __init__(self, channel: grpc.aio.Channel, *, within: float = _WITHIN) -> None:
        self._stub = fleet_pb2_grpc.NodePoliciesStub(channel)
        self._within = within

    async def set(self, revision: str, values: Mapping[str, str]) -> str:
        """Have it accept exactly these for its next start; answers their revision.

        Raises Conflict when what it has accepted is not of `revision`, or when it has nowhere to keep them.
        """
        request = fleet_pb2.SetPoliciesRequest(revision=revision, values=dict(values))
        response = await _answer(self._stub.SetPolicies(request, timeout=self._within))
        return str(response.revision)

    async def restart(self, run_id: str, reason: str, drain: float = 0.0) -> None:
        """Have it end gracefully and start again; `drain` in seconds, 0 for its own.

        Raises Conflict when it is in another run already: repeating a call never restarts twice.
        """
        request = fleet_pb2.RestartRequest(run_id=run_id, reason=reason, drain_ms=round(drain * 1000))
        await _answer(self._stub.Restart(request, timeout=self._within))


async def _answer(call: Awaitable[T]) -> T:
    """Await a call. Raises AdminError."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        kind = _ERRORS.get(error.code(), AdminError)
        raise kind(error.details() or error.code().name) from None


def _merge(stored_config: StoredConfig, desired_config: NetworkingResource) -> Message:
    message = Message.FromString(stored_config.raw)
    networking_config.write(desired_config.config, message)
    networking_config.write_metadata(desired_config, message)
    return message
