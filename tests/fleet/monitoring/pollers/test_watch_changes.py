from __future__ import annotations

from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.pollers.watch_changes import pack_changes, unpack_changes
from fleet.monitoring.sources.presence import ListedAgent

AGENT = ListedAgent(
    name="node-1",
    auth_id="auth-1",
    expires_at=700.5,
    ttl=600.0,
    via_proxy_id="proxy-1",
    mode=ReconnectMode.RECONNECT,
    health_check=True,
    policy_read_at=10.0,
    desired_count=3,
    claimed_count=2,
    tracked_count=1,
    ttl_seen=30.0,
    attributes=AgentAttributes("18.1.0", (("env", "prod"), ("site", "\u00e5s"))),
)


def test_changes_survive_the_way() -> None:
    """Every value of an agent has its type back."""
    changes = {"host-1": AGENT, "host-2": None}
    assert unpack_changes([pack_changes(changes)]) == changes


def test_the_newest_change_of_an_agent_counts() -> None:
    renewed = AGENT._replace(expires_at=900.0)
    blobs = [pack_changes({"a": AGENT, "b": None}), pack_changes({"a": renewed, "b": AGENT})]
    assert unpack_changes(blobs) == {"a": renewed, "b": AGENT}
    assert unpack_changes([]) == {}


def test_nothing_is_stored_without_changes() -> None:
    assert pack_changes({}) == b""
