"""Metrics of finished calls."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from fleet.nodes.gateway.call_metrics import CallMetrics

#: One on a bound, one beyond all of them.
SECONDS = [0.0, 0.003, 0.005, 0.0051, 2.0, 9.99, 10.0, 100.0]


def test_calls_are_counted_by_rule_and_status() -> None:
    registry = CollectorRegistry()
    calls = CallMetrics(registry)
    for status in ("OK", "OK", "UNAVAILABLE"):
        calls.record("a/0", status, 0.1)
    calls.record("b/0", "OK", 0.1)

    name = "refloat_gateway_calls_total"
    assert registry.get_sample_value(name, {"rule": "a/0", "status": "OK"}) == 2
    assert registry.get_sample_value(name, {"rule": "a/0", "status": "UNAVAILABLE"}) == 1
    assert [calls.call_count_of(rule) for rule in ("a/0", "b/0", "c/0")] == [3, 1, 0]


def test_durations_are_those_of_a_histogram_of_the_library() -> None:
    """The same buckets, each with its bound, and the same sum."""
    registry, library_registry = CollectorRegistry(), CollectorRegistry()
    calls = CallMetrics(registry)
    name = "refloat_gateway_call_seconds"
    histogram = Histogram(name, "text", ["rule"], registry=library_registry)
    for seconds in SECONDS:
        calls.record("a/0", "OK", seconds)
        histogram.labels("a/0").observe(seconds)

    assert sample_lines(registry, name) == sample_lines(library_registry, name)


def sample_lines(registry: CollectorRegistry, name: str) -> list[str]:
    """Return the samples of a histogram, without those of the time when it was created."""
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if line.startswith(name) and "_created" not in line]
