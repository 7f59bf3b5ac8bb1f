"""What a node could not use."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

from fleet.nodes.shared.refusals import Refusals, host_of


def test_refusals_are_counted_each_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Of a kind and peer; another kind, or another peer, is told of."""
    registry = CollectorRegistry()
    refusals = Refusals(registry)
    with caplog.at_level(logging.WARNING):
        for kind, peer in (("frame", "a"), ("frame", "a"), ("frame", "b"), ("tunnel", "a")):
            refusals.refuse(kind, peer, f"of {peer}", "it is empty")
        refusals.log_once("heartbeat", "a", "of a", "it has no id")
    assert caplog.messages == [
        "frame.refused: of a: it is empty",
        "frame.refused: of b: it is empty",
        "tunnel.refused: of a: it is empty",
        "heartbeat.refused: of a: it has no id",
    ]
    assert registry.get_sample_value("refloat_refused_total", {"kind": "frame"}) == 3
    assert registry.get_sample_value("refloat_refused_total", {"kind": "heartbeat"}) is None


def test_refusals_of_made_up_names_end(caplog: pytest.LogCaptureFixture) -> None:
    """Who makes up names fills neither the log nor the memory; the count goes on."""
    registry = CollectorRegistry()
    refusals = Refusals(registry)
    with caplog.at_level(logging.WARNING):
        for number in range(1_100):
            refusals.refuse("frame", str(number), "x", "y")
    assert len(caplog.messages) == 1_000
    assert registry.get_sample_value("refloat_refused_total", {"kind": "frame"}) == 1_100


def test_host_of_a_peer() -> None:
    """Without the port, which is another for each connection."""
    assert [host_of(peer) for peer in ("ipv4:10.0.0.1:5", "ipv6:[::1]:7", "unix")] == [
        "ipv4:10.0.0.1",
        "ipv6:[::1]",
        "unix",
    ]
