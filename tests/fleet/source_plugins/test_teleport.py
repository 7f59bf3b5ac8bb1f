from __future__ import annotations

from fleet.clusters.connection_test.teleport_steps import CHECKS
from fleet.source_plugins.declaration import COMMON_STEPS, list_missing
from fleet.source_plugins.teleport import SOURCE
from fleet.vocabulary.capabilities import Capability


def test_every_step_has_a_check() -> None:
    assert set(SOURCE.test_steps) == {*COMMON_STEPS, *CHECKS}
    tested = frozenset().union(*SOURCE.test_steps.values())
    assert tested == SOURCE.capabilities


def test_every_missing_capability_has_a_reason_of_its_own() -> None:
    """No sentence says that Teleport lacks an API which it has."""
    reasons = list_missing(SOURCE, {})
    assert reasons == SOURCE.absence_reasons
    assert set(reasons) == frozenset(Capability) - SOURCE.capabilities
