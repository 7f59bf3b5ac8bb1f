"""Nothing in the code knows which database it is: every test of the models passes on PostgreSQL too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow.postgres import postgresql

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_ROOT = Path(__file__).resolve().parents[2]


#: Tests that use the database, in two parts that may run at the same time.
_PARTS = {
    "engine": (
        "tests/fleet/test_lease.py",
        "tests/fleet/alerts/evidence/test_copies.py",
        "tests/fleet/alerts/test_defaults.py",
        "tests/fleet/alerts/test_evaluator.py",
        "tests/fleet/alerts/test_outbox.py",
        "tests/fleet/alerts/test_outbox_races.py",
        "tests/fleet/alerts/test_repost.py",
        "tests/fleet/alerts/test_setup_actions.py",
        "tests/fleet/alerts/test_store.py",
        "tests/fleet/changes",
        "tests/fleet/migrations",
        "tests/fleet/models",
        "tests/fleet/monitoring/history",
    ),
    "pages": (
        "tests/dashboards/access/test_views.py",
        "tests/dashboards/alerts/api",
        "tests/dashboards/alerts/views",
        "tests/dashboards/changes/api",
        "tests/dashboards/changes/views",
        "tests/dashboards/fleet/api",
        "tests/dashboards/fleet/test_agent_history.py",
        "tests/dashboards/fleet/test_history.py",
        "tests/dashboards/fleet/views",
        "tests/dashboards/shared/api",
        "tests/dashboards/system",
        "tests/dashboards/test_api_v1.py",
        "tests/dashboards/test_pages.py",
    ),
}


@pytest.fixture
def database_url() -> Iterator[str]:
    """A PostgreSQL server of its own."""
    with postgresql() as url:
        yield url


@pytest.mark.parametrize("part", _PARTS)
def test_models_and_api_on_postgresql(database_url: str, part: str) -> None:
    """Migrations apply, and the tests of models, history, alerting, tokens, pages and API see no difference."""
    outcome = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-m",
                "not slow and not browser",
                # These use no rows of their own, and take a fifth of the time.
                "-k",
                "not openapi and not every_api_path and not every_button",
                "-p",
                "no:cacheprovider",
            ),
            *_PARTS[part],
        ],
        cwd=_ROOT,
        env={**os.environ, "DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=False,
        timeout=1700,
    )
    assert outcome.returncode == 0, outcome.stdout[-4000:] + outcome.stderr[-2000:]
    # The fast suite skips the tests of partitions and of two writers, because they run here.
    assert "SQLite has" not in outcome.stdout
