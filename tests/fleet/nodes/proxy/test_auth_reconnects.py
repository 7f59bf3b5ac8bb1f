"""A proxy passes on the advice to connect to another auth, and keeps what came of it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from fleet.nodes.proxy.auth_reconnects import AuthReconnects
from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.nodes.proxy.tunnels import Tunnel, TunnelTable
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.discovery import Publisher
from fleet.wire import fleet_pb2

_Reply = fleet_pb2.AuthAdvisoryReply


def _advisory(advisory_id: str = "x") -> fleet_pb2.AuthReconnectAdvisory:
    return fleet_pb2.AuthReconnectAdvisory(advisory_id=advisory_id, reason="it is sick", leave_auth_id="a")


class Bench:
    """A table with tunnels, and what advises their agents."""

    def __init__(self, *agents: str) -> None:
        self.registry = CollectorRegistry()
        metrics = ProxyMetrics(self.registry)
        self.table = TunnelTable(Publisher(10.0, compact=True), KeepAlive(), metrics)
        self.reconnects = AuthReconnects(self.table, metrics)
        self.tunnels = {agent: self._open(agent) for agent in agents}

    def _open(self, agent: str) -> Tunnel:
        tunnel = self.table.open(fleet_pb2.AgentHello(agent_id=agent, name=agent), object(), 0.0)
        self.table.join(tunnel, 0.0)
        return tunnel

    def answer(
        self, agent: str, outcome: _Reply.Outcome, *, advisory_id: str = "x", reason: str = ""
    ) -> None:
        reply = _Reply(advisory_id=advisory_id, outcome=outcome, reason=reason)
        self.reconnects.record_reply(self.tunnels[agent], reply)


async def test_advises_once_an_id() -> None:
    """Who has the advice is not advised again; another id is another intent; tunnels' advice is another matter."""
    bench = Bench("a", "b", "c")
    first = bench.reconnects.advise_agents(_advisory(), ("a", "b", "gone"), 1)
    assert (first.advised, first.left, first.absent, list(first.absent_ids)) == (1, 1, 1, ["gone"])
    again = bench.reconnects.advise_agents(_advisory(), (), 0)
    assert (again.advised, again.already) == (2, 1)
    frame = await bench.tunnels["a"].next_frame(lambda: 0.0)
    assert frame is not None
    assert frame.auth_reconnect_advisory == _advisory()
    assert not bench.tunnels["a"].advisory_id
    assert bench.reconnects.advise_agents(_advisory("y"), (), 0).advised == 3
    assert bench.registry.get_sample_value("refloat_auth_advisories_total") == 6.0


def test_answers_are_counted_by_outcome() -> None:
    """Who moved, who was elsewhere, who stays and why; an answer to older advice means nothing."""
    bench = Bench("a", "b", "c", "d")
    bench.reconnects.advise_agents(_advisory(), (), 0)
    bench.answer("a", _Reply.OUTCOME_MOVED)
    bench.answer("b", _Reply.OUTCOME_ELSEWHERE)
    bench.answer("c", _Reply.OUTCOME_STAYS, reason="no other auth took a heartbeat")
    bench.answer("d", _Reply.OUTCOME_STAYS, advisory_id="old")
    seen = bench.reconnects.advise_agents(_advisory(), (), 0, look_only=True)
    assert (seen.already, seen.moved, seen.elsewhere, seen.staying) == (4, 1, 1, 1)
    assert list(seen.staying_ids) == ["c"]
    assert dict(seen.staying_reasons) == {"c": "no other auth took a heartbeat"}
    replies = "refloat_auth_advisory_replies_total"
    for outcome in ("moved", "elsewhere", "stays"):
        assert bench.registry.get_sample_value(replies, {"outcome": outcome}) == 1.0


def test_look_only_advises_nobody() -> None:
    """It answers what became of those who were advised."""
    bench = Bench("a")
    assert bench.reconnects.advise_agents(_advisory(), (), 0, look_only=True).left == 1
    assert not bench.tunnels["a"].auth_advisory_id


def test_reason_of_an_agent_is_cut_and_printable() -> None:
    """An agent writes it, and pages show it."""
    bench = Bench("a")
    bench.reconnects.advise_agents(_advisory(), (), 0)
    bench.answer("a", _Reply.OUTCOME_STAYS, reason="two\nlines\x1b[0m" + "x" * 5000)
    reason = bench.reconnects.advise_agents(_advisory(), (), 0).staying_reasons["a"]
    assert reason.startswith("twolines[0m")
    assert len(reason) <= 200
    assert reason.isprintable()
