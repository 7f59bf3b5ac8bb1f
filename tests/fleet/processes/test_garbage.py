"""How often a busy process runs the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fleet.processes import garbage


@pytest.fixture
def default_thresholds() -> Iterator[None]:
    """Set Python's default thresholds, and restore the previous ones after the test."""
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("default_thresholds")
def test_collector_runs_less_often_and_still_collects() -> None:
    """New cycles are collected; objects from before are frozen."""
    garbage.collect_less()

    assert gc.get_threshold()[0] > 700
    assert gc.get_freeze_count() > 0
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1
