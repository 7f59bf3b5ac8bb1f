"""`refloat serve --teleport` as a person runs it, with an auth that does not respond and an identity that expires."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleet.processes import children
from fleet.processes.valkey import find_free_port
from tests.fakes.identity_files import make_identity_file
from tests.fakes.waiting import eventually_sync
from tests.flow.producers import Database, Pages, produced
from tests.meta.house import ROOT


def test_console_starts_with_the_cluster_and_warns_of_its_identity(tmp_path: Path) -> None:
    """The connection test is printed; then the expiry is an incident and a metric."""
    now, path, port = datetime.now(UTC), tmp_path / "identity", find_free_port()
    path.write_bytes(make_identity_file(begins_at=now - timedelta(days=1), ends_at=now + timedelta(hours=1)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REFLOAT_")}
    environment |= {"REFLOAT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "fleet.cli", "serve", "--port", str(port)]
    argv += ["--teleport", f"127.0.0.1:{find_free_port()}", "--identity", str(path)]
    log_path = tmp_path / "log"
    with log_path.open("wb") as log:
        process = children.spawn(argv, env=environment, log=log)
    try:
        eventually_sync(
            lambda: f"is at http://127.0.0.1:{port}/c/teleport/" in log_path.read_text(), seconds=120.0
        )
        assert "Failed   Connection: 127.0.0.1" in log_path.read_text()
        assert "not available: Reconnect advice" in log_path.read_text()

        def run(*arguments: str) -> str:
            command = [sys.executable, "-m", "fleet.cli", *arguments]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

        run("user", "create", "ada", "--role", "admin")
        token = run("token", "create", "ada", "--name", "prometheus", "--scope", "view_metrics").split()[-1]

        def read_metrics() -> Iterator[str]:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"}
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                yield response.read().decode()

        produced(Pages(read_metrics), metrics=("refloat_identity_expiry_timestamp_seconds",))
        produced(Database(tmp_path / "home"), incident_causes=("identity",))
    finally:
        children.stop([process])
