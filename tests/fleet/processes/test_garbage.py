"""How often a busy process looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fleet.processes import garbage


@pytest.fixture
def as_before() -> Iterator[None]:
    """The collector is as Python starts it, and left as it was found."""
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("as_before")
def test_it_is_looked_for_less_often_and_still_found() -> None:
    """Cycles made later are collected; what was loaded before is out of the collector's sight."""
    garbage.collect_less()

    assert gc.get_threshold()[0] > 700
    assert gc.get_freeze_count() > 0
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1
