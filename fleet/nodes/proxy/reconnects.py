"""A proxy's advice to agents to reconnect to another proxy.

It is sent periodically (RFD 226, "Periodic Tunnel Reconnects"), on request, and when the proxy shuts down: in all cases
a frame on the tunnel's Control stream.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable, Collection

from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.nodes.proxy.tunnels import Tunnel, TunnelTable
from fleet.protocol import durations
from fleet.protocol.recovery.reconnect_schedule import ReconnectSchedule
from fleet.wire import fleet_pb2

log = logging.getLogger(__name__)


def choose_tunnels(
    table: TunnelTable,
    agent_ids: Collection[str],
    limit: int,
    is_advised: Callable[[Tunnel], bool],
    *,
    dry_run: bool,
) -> tuple[list[Tunnel], list[Tunnel], fleet_pb2.AdviseReconnectResponse]:
    """Return the tunnels that already have the advice, those to send it to now, and the counts of the response.

    Only tunnels of `agent_ids` count, or all if that is empty. At most `limit` are sent now (0: no limit), none with
    `dry_run`.
    """
    matching_tunnels = [
        tunnel for tunnel in table.offered_tunnels if not agent_ids or tunnel.agent_id in agent_ids
    ]
    already_advised = [tunnel for tunnel in matching_tunnels if is_advised(tunnel)]
    not_advised = [tunnel for tunnel in matching_tunnels if not is_advised(tunnel)]
    newly_advised = [] if dry_run else not_advised[:limit] if limit else not_advised
    absent_ids = sorted(set(agent_ids) - {tunnel.agent_id for tunnel in matching_tunnels})
    response = fleet_pb2.AdviseReconnectResponse(
        advised_count=len(newly_advised),
        already_advised_count=len(already_advised),
        remaining_count=len(not_advised) - len(newly_advised),
        absent_count=len(absent_ids),
        absent_ids=absent_ids,
    )
    return already_advised, newly_advised, response


class ReconnectAdvisor:
    """Advises the agents of one proxy. `now` is a time of the monotonic clock."""

    def __init__(self, table: TunnelTable, interval: float, metrics: ProxyMetrics) -> None:
        """`interval`: seconds between the periodic advice; 0: never."""
        self._table = table
        self._schedule: ReconnectSchedule[Tunnel] = ReconnectSchedule(interval)
        self._metrics = metrics

    def add_tunnel(self, tunnel: Tunnel, now: float) -> None:
        """Schedule the periodic advice of a new tunnel."""
        self._schedule.add_tunnel(tunnel, now, random.random())

    def remove_tunnel(self, tunnel: Tunnel) -> None:
        """Stop advising a tunnel that has closed or is closing."""
        self._schedule.remove_tunnel(tunnel)

    def sweep(self, now: float) -> None:
        """Send the periodic advice that is due."""
        due = self._schedule.take_due(now, random.random)
        if due:
            interval = durations.format_seconds(self._schedule.interval)
            self._advise(due, secrets.token_hex(8), f"periodic reconnect, about every {interval}", "periodic")

    def advise_agents(
        self, advisory_id: str, reason: str, agent_ids: Collection[str], limit: int, *, dry_run: bool = False
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Send the advice to the agents that `choose_tunnels` returns; nobody receives it twice."""
        already_advised, newly_advised, response = choose_tunnels(
            self._table,
            agent_ids,
            limit,
            lambda tunnel: tunnel.advisory_id == advisory_id,
            dry_run=dry_run,
        )
        self._advise(newly_advised, advisory_id, reason, "requested")
        response.staying_ids.extend(
            tunnel.agent_id for tunnel in already_advised if tunnel.is_advice_accepted is False
        )
        response.staying_count = len(response.staying_ids)
        return response

    def shut_down(self) -> None:
        """Advise all agents to leave, and tell them that this proxy does not come back."""
        self._advise(
            self._table.offered_tunnels, secrets.token_hex(8), "the proxy is shutting down", "shutdown"
        )

    def record_reply(self, tunnel: Tunnel, reply: fleet_pb2.AdvisoryReply) -> None:
        """Record an agent's reply."""
        if reply.advisory_id != tunnel.advisory_id:
            return
        tunnel.is_advice_accepted = reply.accepted
        self._metrics.advisory_replies.labels("accepted" if reply.accepted else "no-proxy").inc()

    def _advise(self, tunnels: Collection[Tunnel], advisory_id: str, reason: str, cause: str) -> None:
        if not tunnels:
            return
        advisory = fleet_pb2.ReconnectAdvisory(
            advisory_id=advisory_id, reason=reason, leaving=cause == "shutdown"
        )
        for tunnel in tunnels:
            tunnel.advisory_id, tunnel.is_advice_accepted = advisory_id, None
            tunnel.send(fleet_pb2.ProxyFrame(reconnect_advisory=advisory))
        self._metrics.advisories.labels(cause).inc(len(tunnels))
        log.info("reconnect.advised: %d agents, advice %s: %s", len(tunnels), advisory_id, reason)
