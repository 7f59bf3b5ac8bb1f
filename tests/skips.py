"""What may be skipped in CI: a pytest plugin. There root can install every program, so any other skip is a failure."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

#: The reasons that CI accepts, and where the skipped tests run.
ACCEPTED = {
    "SQLite has no partitions": "tests/flow/test_postgres.py runs them on PostgreSQL",
    "SQLite has one writer at a time": "tests/flow/test_postgres.py runs them on PostgreSQL",
    "PostgreSQL deletes whole days": "the fast suite runs them on SQLite",
    "PostgreSQL plans by statistics, of which a test has none": "the fast suite runs them on SQLite",
    "asyncio loses no connection since Python 3.12": "with Python 3.11",
    "this machine gives away more ports than Linux does by itself": "on a machine with Linux's defaults",
    "this machine's Go is older than 1.26": "on a machine with Go 1.26, which peers.sh does not install",
}


def must_run_all() -> bool:
    """Return whether everything that a test needs can be installed: in CI, by root."""
    return bool(os.environ.get("CI")) and os.geteuid() == 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip that CI does not accept into a failure."""
    report = yield
    if report.skipped and must_run_all():
        reason = reason_of(report)
        if reason not in ACCEPTED:
            report.outcome = "failed"
            report.longrepr = f"skipped in CI, without a reason in tests/skips.py: {reason}"
    return report


def reason_of(report: pytest.TestReport) -> str:
    """Return why a test was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
