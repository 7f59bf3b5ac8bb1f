"""Every metric has one name for one thing: our prefix, or Teleport's name with its meaning; and a line in docs/."""

from __future__ import annotations

import re

import pytest

from tests.meta.house import ROOT
from tests.meta.vocabularies import declared_metrics

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


def _documented(name: str) -> bool:
    spelled = re.compile(rf"`{name}(_total)?(\{{[a-z_,]+\}})?`")
    return any(spelled.search(page.read_text(encoding="utf-8")) for page in (ROOT / "docs").rglob("*.md"))


def test_metrics_are_found() -> None:
    """The pattern still matches how they are declared, by the console and by nodes."""
    assert {"refloat_websocket_connections", "refloat_gateway_calls", "process_state"} <= set(
        declared_metrics()
    )


@pytest.mark.parametrize("name", sorted(declared_metrics()))
def test_metric_has_a_prefix_and_a_line_in_the_documents(name: str) -> None:
    """A name without our prefix is one of Teleport's, and each is explained."""
    assert name.startswith("refloat_") or name in _TELEPORTS
    assert _documented(name), f"docs/ says nothing of {name}"


def test_metric_is_declared_once() -> None:
    """No name is declared at two places: a sum over targets would add apples to pears."""
    assert [name for name, times in declared_metrics().items() if times > 1] == []


def test_names_of_teleport_are_in_use() -> None:
    """Every exception names a declared metric."""
    assert _TELEPORTS - set(declared_metrics()) == set()
