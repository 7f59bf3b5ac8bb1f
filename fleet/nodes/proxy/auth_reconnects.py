"""Advice to connect to another auth, passed on by a proxy: RFD 226, "Periodic Auth Reconnects".

The advice travels through the agent's tunnel, so it arrives even if the auth is frozen. The agent replies on the same
tunnel.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.nodes.proxy.reconnects import choose
from fleet.nodes.proxy.tunnels import Tunnel, TunnelTable
from fleet.nodes.shared.auth_advisory import outcome_of
from fleet.protocol.text_limits import cut
from fleet.wire import fleet_pb2

log = logging.getLogger(__name__)

_Outcome = fleet_pb2.AuthAdvisoryReply
_LONGEST_REASON = 200


class AuthReconnects:
    """Advises agents through the tunnels of one proxy."""

    def __init__(self, table: TunnelTable, metrics: ProxyMetrics) -> None:
        self._table = table
        self._metrics = metrics

    def advise_agents(
        self,
        advisory: fleet_pb2.AuthReconnectAdvisory,
        agents: Collection[str],
        limit: int,
        *,
        dry_run: bool = False,
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Send the advice to the agents that `choose` returns. The response has the outcomes of earlier recipients."""
        earlier, now, answer = choose(
            self._table,
            agents,
            limit,
            lambda tunnel: tunnel.auth_advisory_id == advisory.advisory_id,
            dry_run=dry_run,
        )
        replies = {tunnel.agent_id: tunnel.auth_reply for tunnel in earlier if tunnel.auth_reply is not None}
        self._advise(now, advisory)
        outcomes = [reply.outcome for reply in replies.values()]
        answer.staying_count = outcomes.count(_Outcome.OUTCOME_STAYED)
        answer.moved_count = outcomes.count(_Outcome.OUTCOME_MOVED)
        answer.elsewhere_count = outcomes.count(_Outcome.OUTCOME_ELSEWHERE)
        for agent, reply in replies.items():
            if reply.outcome == _Outcome.OUTCOME_STAYED:
                answer.staying_ids.append(agent)
                if reply.reason:
                    answer.staying_reasons[agent] = reply.reason
        return answer

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
