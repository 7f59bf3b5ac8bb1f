from __future__ import annotations

from fleet.monitoring.sources.teleport.polling import POLLING
from fleet.source_plugins.teleport import SOURCE
from fleet.vocabulary.capabilities import EVIDENCE_CAPABILITIES


def test_declared_capabilities_are_those_of_the_evidence() -> None:
    assert POLLING.capabilities == SOURCE.capabilities & EVIDENCE_CAPABILITIES
