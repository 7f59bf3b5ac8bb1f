"""Which process runs which tests, and in which order: a pytest plugin over xdist's scheduler.

Tests of a file share their fixtures and so a process. Files that share a running program share a process as well.
"""

from __future__ import annotations

import os

import pytest
from typing_extensions import override
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

#: Tests that share the running demo.
OF_THE_DEMO = ("tests/browser/test_console.py", "tests/flow/test_demo.py")
#: What takes long and comes last would leave the other processes idle, so these begin.
LONG = (
    "tests/flow/test_soak.py",
    "tests/flow/test_postgres.py",
    "tests/flow/test_api_fuzz.py",
    *OF_THE_DEMO,
    "tests/browser/",
    "tests/flow/",
    "tests/fleet/nodes/",
    "tests/meta/",
)


class ByFixture(LoadScopeScheduling):
    """Gives a process a whole file, or all the files that share a running program."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """Return the name of what a test shares with others; they all run in one process."""
    file = nodeid.partition("::")[0]
    if file in OF_THE_DEMO:
        return "the demo"
    if file.startswith("tests/browser/"):
        return "the console"
    return file


def pytest_xdist_auto_num_workers() -> int:
    """Return two more than there are cores, six at most: most of the time a test waits for other processes."""
    return min((os.cpu_count() or 1) + 2, 6)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFixture:
    """Keep the order of `pytest_collection_modifyitems`, not that of how many tests a file has."""
    config.option.loadscopereorder = False
    return ByFixture(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the long ones first."""
    items.sort(key=lambda item: rank_of(item.nodeid))


def rank_of(nodeid: str) -> int:
    """Return the place of a test's file in `LONG`, or the place behind all of them."""
    return next((place for place, prefix in enumerate(LONG) if nodeid.startswith(prefix)), len(LONG))
