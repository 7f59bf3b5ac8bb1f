"""A proxy forwards auth reconnect advisories to agents and keeps their replies."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from fleet.nodes.proxy.auth_reconnects import AuthReconnectAdvisor
from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.nodes.proxy.tunnels import Tunnel, TunnelTable
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.discovery import Publisher
from fleet.wire import fleet_pb2

_Reply = fleet_pb2.AuthAdvisoryReply


def _advisory(advisory_id: str = "x") -> fleet_pb2.AuthReconnectAdvisory:
    return fleet_pb2.AuthReconnectAdvisory(
        advisory_id=advisory_id, reason="it is unhealthy", leave_auth_id="a"
    )


class AdvisedTunnels:
    """A table of tunnels, and the reconnects that advise their agents."""

    def __init__(self, *agents: str) -> None:
        self.registry = CollectorRegistry()
        metrics = ProxyMetrics(self.registry)
        self.table = TunnelTable(Publisher(10.0, compact=True), KeepAlive(), metrics)
        self.reconnects = AuthReconnectAdvisor(self.table, metrics)
        self.tunnels = {agent: self._open(agent) for agent in agents}

    def _open(self, agent: str) -> Tunnel:
        tunnel = self.table.open(fleet_pb2.AgentHello(agent_id=agent, name=agent), object(), 0.0)
        self.table.join(tunnel, 0.0)
        return tunnel

    def record_reply(
        self, agent: str, outcome: _Reply.Outcome, *, advisory_id: str = "x", reason: str = ""
    ) -> None:
        reply = _Reply(advisory_id=advisory_id, outcome=outcome, reason=reason)
        self.reconnects.record_reply(self.tunnels[agent], reply)


async def test_agent_is_advised_once_per_advisory_id() -> None:
    """A new id advises the agent again; advisories for tunnels are independent."""
    advised_tunnels = AdvisedTunnels("a", "b", "c")
    counts = advised_tunnels.reconnects.advise_agents(_advisory(), ("a", "b", "gone"), 1)
    assert (counts.advised_count, counts.remaining_count, counts.absent_count, list(counts.absent_ids)) == (
        1,
        1,
        1,
        ["gone"],
    )
    repeated_counts = advised_tunnels.reconnects.advise_agents(_advisory(), (), 0)
    assert (repeated_counts.advised_count, repeated_counts.already_advised_count) == (2, 1)
    frame = await advised_tunnels.tunnels["a"].next_frame(lambda: 0.0)
    assert frame is not None
    assert frame.auth_reconnect_advisory == _advisory()
    assert not advised_tunnels.tunnels["a"].advisory_id
    assert advised_tunnels.reconnects.advise_agents(_advisory("y"), (), 0).advised_count == 3
    assert advised_tunnels.registry.get_sample_value("refloat_auth_advisories_total") == 6.0


def test_replies_are_counted_by_outcome() -> None:
    """Replies tell who moved, who was elsewhere, and who stays for what reason; replies to older ids are ignored."""
    advised_tunnels = AdvisedTunnels("a", "b", "c", "d")
    advised_tunnels.reconnects.advise_agents(_advisory(), (), 0)
    advised_tunnels.record_reply("a", _Reply.OUTCOME_MOVED)
    advised_tunnels.record_reply("b", _Reply.OUTCOME_ELSEWHERE)
    advised_tunnels.record_reply("c", _Reply.OUTCOME_STAYED, reason="no other auth took a heartbeat")
    advised_tunnels.record_reply("d", _Reply.OUTCOME_STAYED, advisory_id="old")
    counts = advised_tunnels.reconnects.advise_agents(_advisory(), (), 0, dry_run=True)
    assert (
        counts.already_advised_count,
        counts.moved_count,
        counts.elsewhere_count,
        counts.staying_count,
    ) == (
        4,
        1,
        1,
        1,
    )
    assert list(counts.staying_ids) == ["c"]
    assert dict(counts.staying_reasons) == {"c": "no other auth took a heartbeat"}
    replies = "refloat_auth_advisory_replies_total"
    for outcome in ("moved", "elsewhere", "stayed"):
        assert advised_tunnels.registry.get_sample_value(replies, {"outcome": outcome}) == 1.0


def test_dry_run_advises_nobody() -> None:
    """The response has the outcomes so far."""
    advised_tunnels = AdvisedTunnels("a")
    assert advised_tunnels.reconnects.advise_agents(_advisory(), (), 0, dry_run=True).remaining_count == 1
    assert not advised_tunnels.tunnels["a"].auth_advisory_id


def test_reason_of_an_agent_is_shortened_and_printable() -> None:
    """Pages show this text, which the agent writes."""
    advised_tunnels = AdvisedTunnels("a")
    advised_tunnels.reconnects.advise_agents(_advisory(), (), 0)
    advised_tunnels.record_reply("a", _Reply.OUTCOME_STAYED, reason="two\nlines\x1b[0m" + "x" * 5000)
    reason = advised_tunnels.reconnects.advise_agents(_advisory(), (), 0).staying_reasons["a"]
    assert reason.startswith("twolines[0m")
    assert len(reason) <= 200
    assert reason.isprintable()
