"""fleet.v1.TunnelAdmin of simulated proxies: advice to reconnect, or to connect to another auth.

docs/reference/simulated-fleet.md.

The process that receives the request decides where agents go. It tells every process of the simulation, because each
one holds the whole fleet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from random import Random
from typing import Any

import grpc.aio
from typing_extensions import override

from fleet.nodes.simulation.fleet import InstanceModel, SimulatedFleet
from fleet.wire import fleet_pb2, fleet_pb2_grpc

#: Kind of instance that is left ("proxy" or "auth"), then the indexes of the agent, the instance it leaves and the new
#: one.
Move = tuple[str, int, int, int]
SendMoves = Callable[[Sequence[Move]], Awaitable[None]]
Context = grpc.aio.ServicerContext[Any, Any]


class SimulatedReconnectAdvisor:
    """The advice that the proxies of one process have sent."""

    def __init__(self, fleet: SimulatedFleet, send_moves: SendMoves, chance: Random) -> None:
        """`send_moves` tells every process about moves, this one included."""
        self._fleet = fleet
        self._send_moves = send_moves
        self._chance = chance
        #: By kind, proxy and agent: the id of the last advice, and whether the agent stays.
        self._last_advice: dict[tuple[str, int, int], tuple[str, bool]] = {}
        #: By advisory id: how often each agent received it.
        self.sent_counts: dict[str, Counter[int]] = defaultdict(Counter)

    async def advise_agents(
        self,
        proxy: InstanceModel,
        advisory_id: str,
        agent_ids: Collection[str],
        limit: int,
        *,
        dry_run: bool,
        leave_auth: str | None = None,
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Advise agents as a proxy does: nobody is advised twice under one id.

        With `leave_auth`, auth connections move instead of tunnels; if it is empty, whichever auth an agent is
        connected to.
        """
        kind = "proxy" if leave_auth is None else "auth"
        absent_ids = sorted(agent_id for agent_id in agent_ids if proxy.tunnels.get(agent_id) is None)
        connected_ids = [
            agent_id
            for agent_id in (agent_ids or self._list_connected_ids(proxy))
            if proxy.tunnels.get(agent_id) is not None
        ]
        agent_indexes = {
            agent_id: tunnel.agent
            for agent_id in connected_ids
            if (tunnel := proxy.tunnels.get(agent_id)) is not None
        }
        unadvised_agents = [
            agent
            for agent in agent_indexes.values()
            if self._last_advice.get((kind, proxy.index, agent), ("", False))[0] != advisory_id
        ]
        advised_agents = [] if dry_run else unadvised_agents[:limit] if limit else unadvised_agents
        possible_moves = [self._advise(proxy, agent, advisory_id, leave_auth) for agent in advised_agents]
        moves = [move for move in possible_moves if move is not None]
        if moves:
            await self._send_moves(moves)
        staying_ids = [
            agent_id
            for agent_id, agent in agent_indexes.items()
            if self._last_advice.get((kind, proxy.index, agent)) == (advisory_id, True)
            and agent not in advised_agents
        ]
        return fleet_pb2.AdviseReconnectResponse(
            proxy_id=proxy.id,
            advised_count=len(advised_agents),
            already_advised_count=len(agent_indexes) - len(unadvised_agents),
            remaining_count=len(unadvised_agents) - len(advised_agents),
            absent_count=len(absent_ids),
            staying_count=len(staying_ids),
            staying_ids=staying_ids,
            absent_ids=absent_ids,
        )

    def _advise(
        self, proxy: InstanceModel, agent: int, advisory_id: str, leave_auth: str | None
    ) -> Move | None:
        """Advise one agent. If it follows, it goes to a healthy proxy without a tunnel of it, or to a healthy auth."""
        fleet = self._fleet
        self.sent_counts[advisory_id][agent] += 1
        if leave_auth is None:
            kind, leave_index, held_indexes = (
                "proxy",
                proxy.index,
                {int(index) for index in fleet.proxies_by_agent[agent]},
            )
        else:
            kind, leave_index = "auth", int(fleet.auth_by_agent[agent])
            held_indexes = {leave_index}
            if leave_auth and fleet.auths[leave_index].id != leave_auth:
                self._last_advice[kind, proxy.index, agent] = (advisory_id, False)
                return None
        instances = fleet.proxies if leave_auth is None else fleet.auths
        free_indexes = [
            instance.index
            for instance in instances
            if instance.can_write and not instance.is_unhealthy and instance.index not in held_indexes
        ]
        self._last_advice[kind, proxy.index, agent] = (advisory_id, not free_indexes)
        if not free_indexes or fleet.ignores_advice(agent):
            return None
        return kind, agent, leave_index, self._chance.choice(free_indexes)

    def _list_connected_ids(self, proxy: InstanceModel) -> list[str]:
        return [agent_id for agent_id in self._fleet.ids if proxy.tunnels.get(agent_id) is not None]


class SimulatedTunnelAdmin(fleet_pb2_grpc.TunnelAdminServicer):
    """fleet.v1.TunnelAdmin of one simulated proxy."""

    def __init__(self, advisor: SimulatedReconnectAdvisor, proxy: InstanceModel) -> None:
        self._advisor = advisor
        self._proxy = proxy

    @override
    async def AdviseReconnect(
        self, request: fleet_pb2.AdviseReconnectRequest, context: Context
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Advise agents to reconnect, once per advisory id."""
        return await self._advise_agents(request, context, leave_auth=None)

    @override
    async def AdviseAuthReconnect(
        self, request: fleet_pb2.AdviseAuthReconnectRequest, context: Context
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Advise agents to connect to another auth, once per advisory id."""
        return await self._advise_agents(request, context, leave_auth=request.leave_auth_id)

    async def _advise_agents(
        self,
        request: fleet_pb2.AdviseReconnectRequest | fleet_pb2.AdviseAuthReconnectRequest,
        context: Context,
        *,
        leave_auth: str | None,
    ) -> fleet_pb2.AdviseReconnectResponse:
        if not request.advisory_id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "advisory_id: missing")
        return await self._advisor.advise_agents(
            self._proxy,
            request.advisory_id,
            tuple(request.agent_ids),
            request.limit,
            dry_run=request.dry_run,
            leave_auth=leave_auth,
        )
