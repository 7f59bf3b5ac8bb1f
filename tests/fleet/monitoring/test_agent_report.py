from __future__ import annotations

import json

import pytest

from fleet.monitoring.agent_report import ReportError, parse_agent_report

DOCUMENT = {
    "agent_id": "a-1",
    "name": "agent-1",
    "version": "0.1.0",
    "tracker": {
        "desired_count": 2,
        "claimed_proxies": ["p-1"],
        "leaving_proxies": ["p-2", "p-3"],
        "departing_proxies": ["p-3"],
        "inflight": 1,
        "ttl_seen_ms": 10_000,
        "topology_age_ms": 5,
        "proxies": [
            {
                "proxy_id": "p-1",
                "group": "g",
                "generation": 3,
                "expires_in_ms": 900,
                "is_desired": True,
                "is_draining": False,
            }
        ],
    },
    "policy": {"mode": "reconnect", "health_check": True, "auth_id": "auth-1", "read_age_ms": 7},
    "tunnels": [
        {"proxy_id": "p-1", "open_for_ms": 12, "sessions": 1, "is_advised": False, "is_retired": True}
    ],
    "auth_reconnect": {"first_wait_ms": 250, "drain_timeout_ms": None, "every_ms": 3_600_000},
    "services": ["web"],
}


def test_parse_whole_document() -> None:
    """All fields are parsed, and none is added."""
    report = parse_agent_report(json.dumps(DOCUMENT))
    assert report.model_dump(mode="json") == DOCUMENT


def test_parse_agent_of_another_version() -> None:
    """Unknown fields are ignored; missing fields are empty."""
    report = parse_agent_report(
        b'{"agent_id": "a", "moon": "full", "policy": null, "tracker": {"claimed_proxies": [], "phase": 1}}'
    )
    assert (report.agent_id, report.policy, report.services) == ("a", None, ())


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (b"", "the document: Invalid JSON"),
        (b"[]", "the document: Input should be"),
        (b"{}", "agent_id: Field required"),
        (
            b'{"agent_id": "a", "tracker": {"claimed_proxies": [1]}}',
            "tracker.claimed_proxies.0: Input should be a valid string",
        ),
        (
            b'{"agent_id": "a", "tracker": {"desired_count": -1}}',
            "tracker.desired_count: Input should be greater",
        ),
        (json.dumps({"agent_id": "a" * 300}).encode(), "agent_id: String should have at most 256 characters"),
        # No float holds the first one, no date the second one.
        (
            b'{"agent_id": "a", "policy": {"read_age_ms": 1%b}}' % (b"0" * 400),
            "policy.read_age_ms: Input should be",
        ),
        (
            b'{"agent_id": "a", "tunnels": [{"open_for_ms": 1%b}]}' % (b"0" * 15),
            "tunnels.0.open_for_ms: Input should be less",
        ),
    ],
)
def test_invalid_report_is_an_error(document: bytes, sentence: str) -> None:
    """The error names the field."""
    with pytest.raises(ReportError, match=sentence):
        parse_agent_report(document)
