from __future__ import annotations

from fleet.monitoring.sources.teleport.polling import POLLING
from fleet.source_plugins.teleport import SOURCE


def test_declared_capabilities_are_those_of_the_evidence() -> None:
    assert POLLING.capabilities == SOURCE.capabilities
