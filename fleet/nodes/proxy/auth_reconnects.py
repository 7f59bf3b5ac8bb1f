"""Advice to connect to another auth, passed on by a proxy: RFD 226, "Periodic Auth Reconnects".

The advice travels through the agent's tunnel, so it arrives even if the auth is frozen. The agent replies on the same
tunnel.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.nodes.proxy.reconnects import choose_tunnels
from fleet.nodes.proxy.tunnels import Tunnel, TunnelTable
from fleet.nodes.shared.auth_advisory import outcome_of
from fleet.protocol.text_limits import cut
from fleet.wire import fleet_pb2

log = logging.getLogger(__name__)

_Reply = fleet_pb2.AuthAdvisoryReply
_LONGEST_REASON = 200


class AuthReconnectAdvisor:
    """Advises agents through the tunnels of one proxy."""

    def __init__(self, table: TunnelTable, metrics: ProxyMetrics) -> None:
        self._table = table
        self._metrics = metrics

    def advise_agents(
        self,
        advisory: fleet_pb2.AuthReconnectAdvisory,
        agent_ids: Collection[str],
        limit: int,
        *,
        dry_run: bool = False,
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Send the advice to the agents that `choose_tunnels` returns. The response has earlier outcomes too."""
        already_advised, newly_advised, response = choose_tunnels(
            self._table,
            agent_ids,
            limit,
            lambda tunnel: tunnel.auth_advisory_id == advisory.advisory_id,
            dry_run=dry_run,
        )
        replies = {
            tunnel.agent_id: tunnel.auth_reply for tunnel in already_advised if tunnel.auth_reply is not None
        }
        self._advise(newly_advised, advisory)
        outcomes = [reply.outcome for reply in replies.values()]
        response.staying_count = outcomes.count(_Reply.OUTCOME_STAYED)
        response.moved_count = outcomes.count(_Reply.OUTCOME_MOVED)
        response.elsewhere_count = outcomes.count(_Reply.OUTCOME_ELSEWHERE)
        for agent_id, reply in replies.items():
            if reply.outcome == _Reply.OUTCOME_STAYED:
                response.staying_ids.append(agent_id)
                if reply.reason:
                    response.staying_reasons[agent_id] = reply.reason
        return response

    def record_reply(self, tunnel: Tunnel, reply: fleet_pb2.AuthAdvisoryReply) -> None:
        """Store an agent's reply to the last advice on its tunnel."""
        if reply.advisory_id != tunnel.auth_advisory_id:
            return
        # The agent wrote the reason, and the web app shows it.
        reason = "".join(letter for letter in cut(reply.reason, _LONGEST_REASON) if letter.isprintable())
        tunnel.auth_reply = fleet_pb2.AuthAdvisoryReply(outcome=reply.outcome, reason=reason)
        self._metrics.auth_advisory_replies.labels(outcome_of(reply)).inc()

    def _advise(self, tunnels: Collection[Tunnel], advisory: fleet_pb2.AuthReconnectAdvisory) -> None:
        if not tunnels:
            return
        for tunnel in tunnels:
            tunnel.auth_advisory_id, tunnel.auth_reply = advisory.advisory_id, None
            tunnel.send(fleet_pb2.ProxyFrame(auth_reconnect_advisory=advisory))
        self._metrics.auth_advisories.inc(len(tunnels))
        log.info(
            "auth-reconnect.advised: %d agents, advice %s: %s",
            len(tunnels),
            advisory.advisory_id,
            advisory.reason,
        )
