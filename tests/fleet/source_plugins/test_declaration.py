from __future__ import annotations

from dataclasses import replace

from fleet.source_plugins.declaration import find_missing_reason, list_missing
from fleet.source_plugins.refloat import SOURCE
from fleet.vocabulary.capabilities import Capability

_PARTIAL = replace(
    SOURCE,
    label="Fleetwire",
    capabilities=frozenset(Capability) - {Capability.POLICIES, Capability.RECONNECT_ADVICE},
    absence_reasons={Capability.POLICIES: "Fleetwire instances have no policies."},
)


def test_a_declared_capability_is_missing_when_a_round_found_so() -> None:
    findings = {Capability.AGENT_TO_AUTH: "The role refloat lacks the verb list for instances."}
    assert (
        find_missing_reason(_PARTIAL, findings, Capability.AGENT_TO_AUTH)
        == findings[Capability.AGENT_TO_AUTH]
    )
    assert find_missing_reason(_PARTIAL, findings, Capability.AGENTS) is None


def test_a_capability_that_is_not_declared_has_a_reason() -> None:
    """That of the source, or that the product has no API."""
    assert list_missing(_PARTIAL, {}) == {
        Capability.POLICIES: "Fleetwire instances have no policies.",
        Capability.RECONNECT_ADVICE: "Fleetwire has no API for this: reconnect advice.",
    }


def test_refloat_has_every_capability() -> None:
    assert list_missing(SOURCE, {}) == {}
