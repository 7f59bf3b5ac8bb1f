"""Connections to the instances of a cluster for steps of changes; each connection ends with its call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

import grpc.aio

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.health import check_health
from fleet.monitoring.sources.policies import read_policies
from fleet.transport.admin import (
    AdminError,
    InstanceAdminClient,
    NetworkingConfigClient,
    NodePoliciesClient,
    NotAllowedError,
    ReconnectAdviceResult,
    TunnelAdminClient,
    UnreachableError,
)
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSError, TLSFiles
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, ServingStatus
from fleet.vocabulary.node_policies import NodeReport

T = TypeVar("T")
CoroutineRunner = Callable[[Coroutine[Any, Any, Any]], Any]

#: Timeout of each read, seconds.
_READ_TIMEOUT_SECONDS = 3.0
#: Timeout of an admin call, seconds.
_ADMIN_TIMEOUT_SECONDS = 2.0


class AuthClient:
    """The auths of a cluster, tried one after the other."""

    def __init__(
        self, addresses: Iterable[tuple[str, str]], tls: TLSFiles | None, run: CoroutineRunner
    ) -> None:
        """`addresses`: host:port and role of each instance. `run` runs a coroutine in this process's event loop."""
        self._addresses = tuple(addresses)
        self._tls = tls
        self._run = run

    def call(self, operation: Callable[[NetworkingConfigClient], Awaitable[T]]) -> T:
        """Return the result of `operation` at the first reachable auth. Raises AdminError."""
        response: T = self._run(self._call_first_reachable(operation))
        return response

    async def _call_first_reachable(self, operation: Callable[[NetworkingConfigClient], Awaitable[T]]) -> T:
        connections = Connections(self._tls)
        last_error: AdminError = UnreachableError("Refloat has no address of an auth")
        try:
            for address, role in self._addresses:
                try:
                    return await operation(NetworkingConfigClient(connections.read_channel(address, role)))
                except (TLSError, ValueError) as error:
                    raise AdminError(f"{address}: {error}") from error
                except (UnreachableError, NotAllowedError) as error:
                    # Trying the next one is safe: an update that was applied after all shows in its result. A gateway
                    # presents its own certificate to auths, which does not allow writes.
                    last_error = error
        finally:
            await connections.close()
        raise last_error


class Dialer:
    """Calls to instances by id. `read_policies` raises SourceError, all others AdminError."""

    def __init__(
        self, instances: Iterable[InstanceFacts], tls: TLSFiles | None, run: CoroutineRunner
    ) -> None:
        """`run` runs a coroutine in the event loop of this process."""
        self._instances = {facts.id: facts for facts in instances}
        self._tls = tls
        self._run = run

    def advise(
        self, proxy_id: str, advisory_id: str, reason: str, agents: Collection[str], auth: str = ""
    ) -> ReconnectAdviceResult:
        """Ask agents of a proxy to reconnect to another proxy, or from `auth` to another auth. Raises AdminError."""
        return self._call(
            proxy_id,
            lambda channel: _advise(
                TunnelAdminClient(channel), advisory_id, reason, agents, auth, dry_run=False
            ),
        )

    def read_advice(
        self, proxy_id: str, advisory_id: str, agents: Collection[str], auth: str = ""
    ) -> ReconnectAdviceResult:
        """Return how agents of a proxy answered that request, without asking them again. Raises AdminError."""
        return self._call(
            proxy_id,
            lambda channel: _advise(TunnelAdminClient(channel), advisory_id, "", agents, auth, dry_run=True),
        )

    def read_policies(self, instance_id: str) -> tuple[NodeReport, bool]:
        """Return the policies that an instance reports, and whether it reports SERVING. Raises SourceError."""

        async def probe(channel: grpc.aio.Channel) -> tuple[NodeReport, bool]:
            report = await read_policies(channel, timeout=_READ_TIMEOUT_SECONDS)
            health = await check_health(channel, timeout=_READ_TIMEOUT_SECONDS)
            return report, health.serving_status is ServingStatus.SERVING

        try:
            return self._call(instance_id, probe)
        except UnreachableError as error:
            raise SourceError(str(error), has_response=False) from error

    def send_policies(self, instance_id: str, revision: str, values: Mapping[str, str]) -> None:
        """Send the desired policies to an instance, which stores them for its next start. Raises AdminError."""
        self._call(instance_id, lambda channel: NodePoliciesClient(channel).set(revision, values))

    def drain(self, instance_id: str, reason: str) -> None:
        """Drain an instance. Raises AdminError."""
        self._call(instance_id, lambda channel: InstanceAdminClient(channel).drain(reason))

    def undrain(self, instance_id: str) -> None:
        """Undrain an instance. Raises AdminError."""
        self._call(instance_id, lambda channel: InstanceAdminClient(channel).undrain())

    def degrade(self, instance_id: str, reason: str, duration_seconds: float) -> None:
        """Mark an instance as degraded for some time. Raises AdminError."""
        self._call(
            instance_id,
            lambda channel: InstanceAdminClient(channel, within=_ADMIN_TIMEOUT_SECONDS).degrade(
                reason, duration_seconds
            ),
        )

    def restore(self, instance_id: str) -> None:
        """Clear the degraded mark of an instance. Raises AdminError."""
        self._call(
            instance_id,
            lambda channel: InstanceAdminClient(channel, within=_ADMIN_TIMEOUT_SECONDS).restore(),
        )

    def restart(self, instance_id: str, run_id: str, reason: str, drain_seconds: float) -> None:
        """Restart an instance, if `run_id` is its present run; drain it first. Raises AdminError."""
        self._call(
            instance_id, lambda channel: NodePoliciesClient(channel).restart(run_id, reason, drain_seconds)
        )

    def _call(self, instance_id: str, operation: Callable[[grpc.aio.Channel], Awaitable[T]]) -> T:
        facts = self._instances.get(instance_id)
        if facts is None or not facts.address:
            raise UnreachableError(f"the instance {instance_id} is no longer in the fleet")

        async def call_instance() -> T:
            connections = Connections(self._tls)
            try:
                return await operation(connections.channel(facts.address, facts.kind))
            except (ValueError, TLSError) as error:
                raise AdminError(f"{facts.address}: {error}") from error
            finally:
                await connections.close()

        response: T = self._run(call_instance())
        return response


async def call_instance_admin(
    address: str,
    kind: InstanceKind,
    tls: TLSFiles | None,
    operation: Callable[[InstanceAdminClient], Awaitable[object]],
) -> str:
    """Make admin calls to an instance; return the error as a sentence, empty on success."""
    connections = Connections(tls)
    try:
        await operation(
            InstanceAdminClient(connections.channel(address, kind), within=_ADMIN_TIMEOUT_SECONDS)
        )
    except (AdminError, TLSError, ValueError) as error:
        return str(error)
    finally:
        await connections.close()
    return ""


async def _advise(
    admin: TunnelAdminClient,
    advisory_id: str,
    reason: str,
    agents: Collection[str],
    auth: str,
    *,
    dry_run: bool,
) -> ReconnectAdviceResult:
    if auth:
        return await admin.advise_auth_reconnect(advisory_id, reason, auth, agent_ids=agents, dry_run=dry_run)
    return await admin.advise_reconnect(advisory_id, reason, agent_ids=agents, dry_run=dry_run)
