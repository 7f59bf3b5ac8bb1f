"""Keeps the garbage collector from what lives as long as a run, such as modules and collected tests: a pytest plugin.

Every full collection would visit all of it.
"""

from __future__ import annotations

import gc

import pytest


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import tests without collections: nothing of that is garbage. The controller of xdist imports none."""
    if not session.config.pluginmanager.hasplugin("dsession"):
        gc.disable()


def pytest_collection_finish() -> None:
    """Collect once, and leave out all that is alive from then on."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Collect as usual, also if the collection of tests failed.

    What lives as long as the run stays left out: at its end pytest looks five times for errors in destructors.
    """
    gc.enable()
