from __future__ import annotations

import tomllib

from fleet.clusters.connection_test.refloat_steps import CHECKS
from fleet.monitoring.sources.refloat import POLLING
from fleet.source_plugins.declaration import COMMON_STEPS
from fleet.source_plugins.refloat import SOURCE
from fleet.source_plugins.registry import BUILT_IN, GROUP
from fleet.vocabulary.capabilities import EVIDENCE_CAPABILITIES
from tests.meta.house import ROOT


def test_built_in_sources_are_entry_points_of_the_package() -> None:
    """An installation finds by metadata what a checkout finds in code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][GROUP] == {point.name: point.value for point in BUILT_IN}


def test_evidence_delivers_what_is_declared() -> None:
    assert POLLING.capabilities == SOURCE.capabilities & EVIDENCE_CAPABILITIES


def test_every_step_has_a_check() -> None:
    assert set(SOURCE.test_steps) == {*COMMON_STEPS, *CHECKS}
