"""Advice to invented agents to reconnect elsewhere, or to connect to another auth: fleet.v1.TunnelAdmin of simulated
proxies. docs/simulate.md.

The part that is asked decides who goes where; every part is told of the moves, for each holds the whole fleet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from random import Random
from typing import Any

import grpc.aio
from typing_extensions import override

from fleet.nodes.simulation.fleet import Fleet, Instance
from fleet.wire import fleet_pb2, fleet_pb2_grpc

#: What is left ("proxy" or "auth"), an agent, the instance it leaves and the one it goes to, by their places.
Move = tuple[str, int, int, int]
Spread = Callable[[Sequence[Move]], Awaitable[None]]
Context = grpc.aio.ServicerContext[Any, Any]


class Advice:
    """What the proxies of one part advised."""

    def __init__(self, fleet: Fleet, spread: Spread, chance: Random) -> None:
        """`spread` tells every part of moves, this one too."""
        self._fleet = fleet
        self._spread = spread
        self._chance = chance
        #: By what is left, proxy and agent: the advice the agent has, and whether it stays.
        self._given: dict[tuple[str, int, int], tuple[str, bool]] = {}
        #: By advice: how often each agent was sent it.
        self.asked: dict[str, Counter[int]] = defaultdict(Counter)

    async def ask(
        self,
        proxy: Instance,
        advisory_id: str,
        agents: Collection[str],
        limit: int,
        *,
        look_only: bool,
        leave_auth: str | None = None,
    ) -> fleet_pb2.AdviseReconnectResponse:
        """As a proxy does it: nobody is advised twice under one id. `leave_auth`: auth connections move, not tunnels.

        Empty, that is whichever auth an agent is connected to.
        """
        kind = "proxy" if leave_auth is None else "auth"
        absent = sorted(one for one in agents if proxy.tunnels.get(one) is None)
        wanted = [one for one in (agents or self._all(proxy)) if proxy.tunnels.get(one) is not None]
        places = {one: opened.agent for one in wanted if (opened := proxy.tunnels.get(one)) is not None}
        fresh = [
            agent
            for agent in places.values()
            if self._given.get((kind, proxy.index, agent), ("", False))[0] != advisory_id
        ]
        now = [] if look_only else fresh[:limit] if limit else fresh
        found = [self._advise(proxy, agent, advisory_id, leave_auth) for agent in now]
        moves = [move for move in found if move is not None]
        if moves:
            await self._spread(moves)
        staying = [
            one
            for one, agent in places.items()
            if self._given.get((kind, proxy.index, agent)) == (advisory_id, True) and agent not in now
        ]
        return fleet_pb2.AdviseReconnectResponse(
            proxy_id=proxy.id,
            advised=len(now),
            already=len(places) - len(fresh),
            left=len(fresh) - len(now),
            absent=len(absent),
            staying=len(staying),
            staying_ids=staying,
            absent_ids=absent,
        )

    def _advise(self, proxy: Instance, agent: int, advisory_id: str, leave_auth: str | None) -> Move | None:
        """Send it to one agent; who takes it goes to a proxy that is well and that it has no tunnel to, or to another
        auth that is well."""
        fleet = self._fleet
        self.asked[advisory_id][agent] += 1
        if leave_auth is None:
            kind, leaves, held = "proxy", proxy.index, {int(place) for place in fleet.places[agent]}
        else:
            kind, leaves = "auth", int(fleet.auth[agent])
            held = {leaves}
            if leave_auth and fleet.auths[leaves].id != leave_auth:
                self._given[kind, proxy.index, agent] = (advisory_id, False)
                return None
        instances = fleet.proxies if leave_auth is None else fleet.auths
        free = [
            instance.index
            for instance in instances
            if instance.writes and not instance.unhealthy and instance.index not in held
        ]
        self._given[kind, proxy.index, agent] = (advisory_id, not free)
        if not free or fleet.is_deaf(agent):
            return None
        return kind, agent, leaves, self._chance.choice(free)

    def _all(self, proxy: Instance) -> list[str]:
        return [one for one in self._fleet.ids if proxy.tunnels.get(one) is not None]


class TunnelAdmin(fleet_pb2_grpc.TunnelAdminServicer):
    """The door of one proxy."""

    def __init__(self, advice: Advice, proxy: Instance) -> None:
        self._advice = advice
        self._proxy = proxy

    @override
    async def AdviseReconnect(
        self, request: fleet_pb2.AdviseReconnectRequest, context: Context
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Advise once for each id."""
        return await self._ask(request, context, leave_auth=None)

    @override
    async def AdviseAuthReconnect(
        self, request: fleet_pb2.AdviseAuthReconnectRequest, context: Context
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Advise once for each id."""
        return await self._ask(request, context, leave_auth=request.leave_auth_id)

    async def _ask(
        self,
        request: fleet_pb2.AdviseReconnectRequest | fleet_pb2.AdviseAuthReconnectRequest,
        context: Context,
        *,
        leave_auth: str | None,
    ) -> fleet_pb2.AdviseReconnectResponse:
        if not request.advisory_id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "advisory_id: is missing")
        return await self._advice.ask(
            self._proxy,
            request.advisory_id,
            tuple(request.agent_ids),
            request.limit,
            look_only=request.look_only,
            leave_auth=leave_auth,
        )
