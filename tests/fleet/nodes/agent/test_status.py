"""The status document of an agent."""

from __future__ import annotations

import json

from fleet.monitoring import agent_report
from fleet.nodes.agent import status
from fleet.nodes.agent.auth_connection import Identity
from fleet.protocol.recovery import pick_healthy
from fleet.protocol.recovery.discovery import DiscoveredProxy
from fleet.protocol.recovery.service_config import PickHealthyMode
from fleet.protocol.recovery.tracker import Tracker
from fleet.transport.pick_healthy.events import ChannelPolicy


def test_document_contains_the_whole_tracker() -> None:
    """Every proxy has its group, generation and remaining time; claims, policy and services are included."""
    tracker = Tracker("default", 1)
    lease = tracker.try_acquire(0.0)
    assert lease is not None
    old, new = (
        DiscoveredProxy(name, ttl=10.0, group="blue", generation=generation)
        for name, generation in (("p-old", 1), ("p-new", 2))
    )
    tracker.track_expected([old, new], 0.0)
    lease.claim("p-new")
    policy = ChannelPolicy(PickHealthyMode.PICK_FIRST, health_check=False, auth_id="auth", received_at=1.0)
    identity = Identity("id", "agent-1", "1.2.3", {"env": "prod"})
    document = status.document(identity, tracker, policy, (), ("web",), 4.0)
    assert json.loads(json.dumps(document)) == document
    assert (document["agent_id"], document["name"], document["services"]) == ("id", "agent-1", ["web"])
    assert (document["version"], document["labels"]) == ("1.2.3", {"env": "prod"})
    assert document["policy"] == {
        "mode": "pick_first",
        "health_check": False,
        "auth_id": "auth",
        "read_age_ms": 3000,
        "problem": "",
    }
    assert document["auth_reconnect"] == {"first_wait_ms": 250, "drain_timeout_ms": None, "every_ms": None}
    assert document["tracker"] == {
        "desired_count": 1,
        "claimed_proxies": ["p-new"],
        "leaving_proxies": [],
        "departing_proxies": [],
        "inflight": 0,
        "ttl_seen_ms": 10_000,
        "topology_age_ms": 4000,
        "proxies": [
            {
                "proxy_id": "p-new",
                "group": "blue",
                "generation": 2,
                "expires_in_ms": 6000,
                "is_desired": True,
                "is_draining": False,
            },
            {
                "proxy_id": "p-old",
                "group": "blue",
                "generation": 1,
                "expires_in_ms": 6000,
                "is_desired": False,
                "is_draining": False,
            },
        ],
    }


def test_document_contains_auth_reconnect_settings() -> None:
    """The flags in milliseconds; null means never, and for the first wait the default of Teleport."""
    settings = pick_healthy.BalancerSettings(first_wait=None, drain_timeout=60.0, reconnect_every=3600.0)
    document = status.document(Identity("id", "agent-1"), Tracker("default"), None, (), (), 4.0, settings)
    expected = {"first_wait_ms": None, "drain_timeout_ms": 60_000, "every_ms": 3_600_000}
    assert document["auth_reconnect"] == expected
    report = agent_report.parse_agent_report(json.dumps(document)).auth_reconnect
    assert report is not None
    assert report.model_dump() == expected


def test_document_before_first_policy_and_proxy() -> None:
    """The policy and the topology age are null, and the list of proxies is empty."""
    document = status.document(Identity("id", "agent-1"), Tracker("default"), None, (), (), 4.0)
    assert document["policy"] is None
    assert document["tracker"]["proxies"] == []
    assert document["tracker"]["topology_age_ms"] is None


def test_document_marks_draining_leaving_and_departing_proxies() -> None:
    """A parsed report has the draining, leaving and departing proxies and the dials in progress."""
    tracker = Tracker("default", 2)
    for name in ("p1", "p2"):
        lease = tracker.try_acquire(0.0)
        assert lease is not None
        lease.claim(name)
    proxies = [
        DiscoveredProxy(name, ttl=10.0, is_draining=name == "p3") for name in ("p1", "p2", "p3", "p4", "p5")
    ]
    tracker.track_expected(proxies, 0.0)
    assert tracker.mark_leaving("p1", 1.0)
    assert tracker.mark_leaving("p2", 1.0, is_departing=True)
    assert tracker.try_acquire(1.0) is not None
    document = status.document(Identity("id", "agent-1"), tracker, None, (), (), 1.0)
    tracker_report = agent_report.parse_agent_report(json.dumps(document)).tracker
    assert (tracker_report.leaving_proxies, tracker_report.departing_proxies, tracker_report.inflight) == (
        ("p1", "p2"),
        ("p2",),
        1,
    )
    assert [entry.proxy_id for entry in tracker_report.proxies if entry.is_draining] == ["p3"]
