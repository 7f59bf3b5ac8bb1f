"""The instances of a cluster, for steps of changes: over connections of their own, which end with the step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

import grpc.aio

from fleet.monitoring.sources import SourceFailed
from fleet.monitoring.sources.health import ask_health
from fleet.monitoring.sources.policies import ask_policies
from fleet.transport.admin import (
    AdminError,
    ReconnectAdvice,
    InstanceAdmin,
    NetworkingConfigAdmin,
    NodePoliciesAdmin,
    NotAllowedError,
    TunnelAdmin,
    UnreachableError,
)
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSError, TLSFiles
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, ServingStatus
from fleet.vocabulary.node_policies import NodeReport

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]

#: A question of a step, seconds.
_WITHIN = 3.0
#: An instance answers an order at once, seconds.
_ORDER_WITHIN = 2.0


class Auths:
    """The auths of a cluster, asked in turn."""

    def __init__(self, addresses: Iterable[tuple[str, str]], tls: TLSFiles | None, run: Run) -> None:
        """`addresses` are host:port with the role of the server; `run` runs a coroutine in the loop of this process."""
        self._addresses = tuple(addresses)
        self._tls = tls
        self._run = run

    def do(self, work: Callable[[NetworkingConfigAdmin], Awaitable[T]]) -> T:
        """Do something through the first auth that answers. Raises AdminError."""
        found: T = self._run(self._do(work))
        return found

    async def _do(self, work: Callable[[NetworkingConfigAdmin], Awaitable[T]]) -> T:
        connections = Connections(self._tls)
        last: AdminError = UnreachableError("no auth is known")
        try:
            for address, role in self._addresses:
                try:
                    return await work(NetworkingConfigAdmin(connections.reader(address, role)))
                except (TLSError, ValueError) as error:
                    raise AdminError(f"{address}: {error}") from error
                except (UnreachableError, NotAllowedError) as error:
                    # An update that was done after all is seen by its result, so asking on is safe. A gateway shows
                    # auths its own certificate, and with that nobody writes.
                    last = error
        finally:
            await connections.close()
        raise last


class Dialer:
    """Instances by id: reading raises SourceFailed, all else AdminError."""

    def __init__(self, instances: Iterable[InstanceFacts], tls: TLSFiles | None, run: Run) -> None:
        """`run` runs a coroutine in the loop of this process."""
        self._instances = {facts.id: facts for facts in instances}
        self._tls = tls
        self._run = run

    def advise(
        self, proxy_id: str, advisory_id: str, reason: str, agents: Collection[str], auth: str = ""
    ) -> ReconnectAdvice:
        """Ask agents of a proxy to reconnect elsewhere, or to leave `auth` for another one. Raises AdminError."""
        return self._do(
            proxy_id,
            lambda channel: _advice(TunnelAdmin(channel), advisory_id, reason, agents, auth, look_only=False),
        )

    def look(self, proxy_id: str, advisory_id: str, agents: Collection[str], auth: str = "") -> ReconnectAdvice:
        """Return what agents of a proxy answered to that advice; nobody is asked. Raises AdminError."""
        return self._do(
            proxy_id,
            lambda channel: _advice(TunnelAdmin(channel), advisory_id, "", agents, auth, look_only=True),
        )

    def read(self, instance_id: str) -> tuple[NodeReport, bool]:
        """What an instance says of its policies, and whether it is SERVING. Raises SourceFailed."""

        async def ask(channel: grpc.aio.Channel) -> tuple[NodeReport, bool]:
            report = await ask_policies(channel, timeout=_WITHIN)
            health = await ask_health(channel, timeout=_WITHIN)
            return report, health.serving is ServingStatus.SERVING

        try:
            return self._do(instance_id, ask)
        except UnreachableError as error:
            raise SourceFailed(str(error), answered=False) from error

    def accept(self, instance_id: str, revision: str, values: Mapping[str, str]) -> None:
        """Have it accept policies. Raises AdminError."""
        self._do(instance_id, lambda channel: NodePoliciesAdmin(channel).set(revision, values))

    def drain(self, instance_id: str, reason: str) -> None:
        """Have it take nobody new. Raises AdminError."""
        self._do(instance_id, lambda channel: InstanceAdmin(channel).drain(reason))

    def undrain(self, instance_id: str) -> None:
        """Have it take connections again. Raises AdminError."""
        self._do(instance_id, lambda channel: InstanceAdmin(channel).undrain())

    def restart(self, instance_id: str, run_id: str, reason: str, drain: float) -> None:
        """Have it end that run and start again. Raises AdminError."""
        self._do(instance_id, lambda channel: NodePoliciesAdmin(channel).restart(run_id, reason, drain))

    def _do(self, instance_id: str, work: Callable[[grpc.aio.Channel], Awaitable[T]]) -> T:
        facts = self._instances.get(instance_id)
        if facts is None or not facts.address:
            raise UnreachableError(f"{instance_id} is not in the record any more")

        async def done() -> T:
            connections = Connections(self._tls)
            try:
                return await work(connections.channel(facts.address, facts.kind))
            except (ValueError, TLSError) as error:
                raise AdminError(f"{facts.address}: {error}") from error
            finally:
                await connections.close()

        found: T = self._run(done())
        return found


async def order(
    address: str,
    kind: InstanceKind,
    tls: TLSFiles | None,
    work: Callable[[InstanceAdmin], Awaitable[object]],
) -> str:
    """Have an instance do something by its admin calls; return why it did not, empty when it did."""
    connections = Connections(tls)
    try:
        await work(InstanceAdmin(connections.channel(address, kind), within=_ORDER_WITHIN))
    except (AdminError, TLSError, ValueError) as error:
        return str(error)
    finally:
        await connections.close()
    return ""


async def _advice(
    admin: TunnelAdmin, advisory_id: str, reason: str, agents: Collection[str], auth: str, *, look_only: bool
) -> ReconnectAdvice:
    if auth:
        return await admin.advise_auth_reconnect(
            advisory_id, reason, auth, agents=agents, look_only=look_only
        )
    return await admin.advise_reconnect(advisory_id, reason, agents=agents, look_only=look_only)
