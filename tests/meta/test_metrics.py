"""Every metric has one name for one thing: our prefix, or Teleport's name with its meaning; and a line in docs/."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.meta.house import ROOT, tracked

#: Names that Teleport has for the same thing, so that dashboards made for it go on.
_TELEPORTS = {
    "backend_write_requests",
    "backend_write_requests_failed",
    "backend_write_seconds",
    "heartbeat_connections_received",
    "process_state",
    "teleport_build_info",
    "teleport_connected_resources",
    "teleport_reverse_tunnels_connected",
}
_CLASSES = r"Counter|Gauge|Histogram|Summary|GaugeMetricFamily|CounterMetricFamily|TunnelPlaces|AuthPlaces"
_DECLARATION = re.compile(rf"\b(?:{_CLASSES})\(\s*\"([a-z0-9_]+)\"")


def _declared() -> Counter[str]:
    return Counter(
        name
        for path in tracked()
        if path.startswith(("fleet/", "dashboards/")) and path.endswith(".py")
        for name in _DECLARATION.findall((ROOT / path).read_text(encoding="utf-8"))
    )


def _documented(name: str) -> bool:
    spelled = re.compile(rf"`{name}(_total)?(\{{[a-z_,]+\}})?`")
    return any(spelled.search(page.read_text(encoding="utf-8")) for page in (ROOT / "docs").glob("*.md"))


def test_metrics_are_found() -> None:
    """The pattern still matches how they are declared, by the console and by nodes."""
    assert {"refloat_sockets", "refloat_gateway_calls", "process_state"} <= set(_declared())


@pytest.mark.parametrize("name", sorted(_declared()))
def test_metric_has_a_prefix_and_a_line_in_the_documents(name: str) -> None:
    """A name without our prefix is one of Teleport's, and each is explained."""
    assert name.startswith("refloat_") or name in _TELEPORTS
    assert _documented(name), f"docs/ says nothing of {name}"


def test_metric_means_one_thing() -> None:
    """No name is declared at two places: a sum over targets would add apples to pears."""
    assert [name for name, times in _declared().items() if times > 1] == []


def test_names_of_teleport_are_in_use() -> None:
    """The list of exceptions has nothing that nobody declares."""
    assert _TELEPORTS - set(_declared()) == set()
