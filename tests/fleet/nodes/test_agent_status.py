"""The document an agent tells of itself."""

from __future__ import annotations

import json

from fleet.nodes import agent_status
from fleet.nodes.agent_connection import Identity
from fleet.protocol.discovery import DiscoveredProxy
from fleet.protocol.service_config import Mode
from fleet.protocol.tracker import Tracker
from fleet.transport.pick_healthy.events import Policy


def test_document_has_the_tracker_in_full() -> None:
    """Every proxy with its group, generation and the time it has left; claims; the policy; services."""
    tracker = Tracker("default", 1)
    lease = tracker.try_acquire(0.0)
    assert lease is not None
    old, new = (
        DiscoveredProxy(name, ttl=10.0, group="blue", generation=generation)
        for name, generation in (("p-old", 1), ("p-new", 2))
    )
    tracker.track_expected([old, new], 0.0)
    lease.claim("p-new")
    policy = Policy(Mode.PICK_FIRST, health_check=False, auth_id="auth", read_at=1.0)
    document = agent_status.document(Identity("id", "agent-1"), tracker, policy, (), ("web",), 4.0)
    assert json.loads(json.dumps(document)) == document
    assert (document["agent_id"], document["name"], document["services"]) == ("id", "agent-1", ["web"])
    assert document["policy"] == {
        "mode": "pick_first",
        "health_check": False,
        "auth_id": "auth",
        "read_age_ms": 3000,
    }
    assert document["tracker"] == {
        "desired_count": 1,
        "claimed": ["p-new"],
        "ttl_seen_ms": 10_000,
        "topology_age_ms": 4000,
        "proxies": [
            {
                "proxy_id": "p-new",
                "group": "blue",
                "generation": 2,
                "expires_in_ms": 6000,
                "desired": True,
            },
            {
                "proxy_id": "p-old",
                "group": "blue",
                "generation": 1,
                "expires_in_ms": 6000,
                "desired": False,
            },
        ],
    }


def test_document_before_anything_is_known() -> None:
    """No policy was read and no proxy heard of: it says so."""
    document = agent_status.document(Identity("id", "agent-1"), Tracker("default"), None, (), (), 4.0)
    assert document["policy"] is None
    assert document["tracker"]["proxies"] == []
    assert document["tracker"]["topology_age_ms"] is None
