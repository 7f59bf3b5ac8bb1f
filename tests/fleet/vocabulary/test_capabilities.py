from __future__ import annotations

from fleet.vocabulary.capabilities import EVIDENCE_CAPABILITIES, Capability
from tests.meta.house import ROOT


def test_every_capability_has_a_row_in_the_reference() -> None:
    """With its label and its effect, in the order of the declaration."""
    text = (ROOT / "docs/reference/sources.md").read_text()
    rows = [f"| {capability.label} | `{capability}` | {capability.effect} |" for capability in Capability]
    assert "\n".join(rows) in text


def test_a_capability_is_evidence_or_for_changes() -> None:
    assert Capability.TUNNELS_BY_AGENT in EVIDENCE_CAPABILITIES
    assert set(Capability) - EVIDENCE_CAPABILITIES == {
        Capability.NETWORKING_READ,
        Capability.NETWORKING_WRITE,
        Capability.RECONNECT_ADVICE,
    }
