"""Which process runs which tests, and in which order: a pytest plugin over xdist's scheduler.

Tests of a file share their fixtures and so a process, unless each takes minutes. Files that share a running program,
or the models of all migrations, share a process as well.
A run of slow tests alone imports no file without any, and one of fast tests no file of slow ones alone: to import all
of them costs each process half a minute.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from typing_extensions import override
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

#: Tests that share the running demo.
OF_THE_DEMO = ("tests/browser/test_console.py", "tests/flow/test_detection.py", "tests/flow/test_demo.py")
#: Tests that share something by folder: the console in Chromium, and the rendered models of all migrations.
SCOPE_BY_FOLDER = {"tests/browser/": "the console", "tests/fleet/migrations/": "the migrations"}
#: Files whose tests share nothing, and take minutes each.
BY_TEST = (
    "tests/flow/test_benches.py",
    "tests/flow/test_past_answers.py",
    "tests/flow/test_postgres.py",
    "tests/flow/test_upgrade.py",
)
#: What takes long and comes last would leave the other processes idle, so these begin.
LONG = (
    "tests/flow/test_postgres.py",
    "tests/flow/test_past_answers.py",
    "tests/flow/test_backup.py",
    "tests/flow/test_upgrade.py",
    "tests/flow/test_soak.py",
    "tests/flow/test_benches.py",
    "tests/flow/test_campaign_worker.py",
    "tests/flow/test_demo_faults.py",
    "tests/flow/test_alerts_live.py",
    "tests/flow/test_api_fuzz.py",
    "tests/browser/",
    "tests/flow/test_rollout.py",
    "tests/flow/test_tunnel_interop.py",
    *OF_THE_DEMO,
    "tests/flow/",
    "tests/fleet/migrations/",
    "tests/fleet/nodes/",
    "tests/meta/",
)
#: The text that a file with a mark contains, for marks that a plugin gives.
_TEXTS = {"hypothesis": "hypothesis"}
#: The marks of every test of a file.
_MARKS_OF_FILE = re.compile(r"^pytestmark = .*", re.MULTILINE)


class ByFixture(LoadScopeScheduling):
    """Gives a process a whole file, all the files that share a running program, or a single long test."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """Return the name of what a test shares with others; they all run in one process."""
    file = nodeid.partition("::")[0]
    if file in BY_TEST:
        return nodeid
    if file in OF_THE_DEMO:
        return "the demo"
    return next((scope for folder, scope in SCOPE_BY_FOLDER.items() if file.startswith(folder)), file)


def pytest_xdist_auto_num_workers() -> int:
    """Return two more than there are cores, six at most: most of the time a test waits for other processes."""
    return min((os.cpu_count() or 1) + 2, 6)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFixture:
    """Keep the order of `pytest_collection_modifyitems`, not that of how many tests a file has."""
    config.option.loadscopereorder = False
    return ByFixture(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file in which nothing has a mark that the run demands, or in which all have one that it excludes."""
    demanded, excluded = marks_of(config.option.markexpr)
    if not (demanded or excluded) or not collection_path.name.startswith("test_") or collection_path.is_dir():
        return None
    text = collection_path.read_text()
    if any(_TEXTS.get(name, f"mark.{name}") not in text for name in demanded):
        return True
    of_all = _MARKS_OF_FILE.search(text)
    return True if of_all and any(f"mark.{name}" in of_all[0] for name in excluded) else None


def marks_of(expression: str) -> tuple[list[str], list[str]]:
    """Return the marks that every test of a run has, and those that none has, by an expression of `-m`."""
    if " or " in expression or "(" in expression:
        return [], []
    terms = re.split(r" and ", expression.strip())
    excluded = [term.removeprefix("not ") for term in terms if term.startswith("not ")]
    return [term for term in terms if term.isidentifier()], excluded


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the long ones first."""
    items.sort(key=lambda test_item: rank_of(test_item.nodeid))


def rank_of(nodeid: str) -> int:
    """Return the place of a test's file in `LONG`, or the place behind all of them."""
    file = nodeid.partition("::")[0]
    places = (place for place, prefix in enumerate(LONG) if file == prefix)
    folders = (place for place, prefix in enumerate(LONG) if file.startswith(prefix))
    return next(places, next(folders, len(LONG)))
