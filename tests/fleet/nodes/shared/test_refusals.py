"""Inputs that an instance refused."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

from fleet.nodes.shared.refusals import Refusals, host_of


def test_refusals_are_counted_and_logged_once_per_peer(caplog: pytest.LogCaptureFixture) -> None:
    """Another kind or another peer is logged again."""
    registry = CollectorRegistry()
    refusals = Refusals(registry)
    with caplog.at_level(logging.WARNING):
        for kind, peer in (("frame", "a"), ("frame", "a"), ("frame", "b"), ("tunnel", "a")):
            refusals.record(kind, peer, f"of {peer}", "it is empty")
        refusals.log_once("heartbeat", "a", "of a", "it has no id")
    assert caplog.messages == [
        "frame.refused: of a: it is empty",
        "frame.refused: of b: it is empty",
        "tunnel.refused: of a: it is empty",
        "heartbeat.refused: of a: it has no id",
    ]
    assert registry.get_sample_value("refloat_refused_inputs_total", {"kind": "frame"}) == 3
    assert registry.get_sample_value("refloat_refused_inputs_total", {"kind": "heartbeat"}) is None


def test_logged_refusals_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    """Invented peer names fill neither the log nor the memory; the count continues."""
    registry = CollectorRegistry()
    refusals = Refusals(registry)
    with caplog.at_level(logging.WARNING):
        for number in range(1_100):
            refusals.record("frame", str(number), "x", "y")
    assert len(caplog.messages) == 1_000
    assert registry.get_sample_value("refloat_refused_inputs_total", {"kind": "frame"}) == 1_100


def test_host_of_a_peer_has_no_port() -> None:
    """Every connection has another port."""
    assert [host_of(peer) for peer in ("ipv4:10.0.0.1:5", "ipv6:[::1]:7", "unix")] == [
        "ipv4:10.0.0.1",
        "ipv6:[::1]",
        "unix",
    ]
