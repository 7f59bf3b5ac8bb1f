"""The web process alone, as it runs: uvicorn with a database, an admin, a token, and a Valkey of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet.management import programs
from fleet.processes import children, valkey
from fleet.processes.valkey import Valkey
from fleet.state.connect import connect
from fleet.state.writer import Writer
from tests.meta.house import ROOT

USERNAME = "ada"
PASSWORD = "correct horse battery"
#: A user without a role, where a test makes one.
GUEST = "guest"

#: Everything in one process: on a busy machine each start of Django costs seconds.
_PREPARE = """
import django; django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
call_command("migrate", verbosity=0)
from fleet.models.clusters import ensure_default_cluster
ensure_default_cluster()
User.objects.create_superuser(USERNAME, password=PASSWORD)
call_command("token", "create", USERNAME, "--name", "test")
"""


@dataclass
class Console:
    """A running web process, and where its record is."""

    url: str
    token: str
    server: Valkey
    data: Path

    @property
    def socket(self) -> str:
        """The address of the live link."""
        return self.url.replace("http", "ws") + "/ws/fleet/"

    def writer(self) -> Writer:
        """Whoever concludes rounds."""
        return Writer(connect(self.server.url), "refloat")


@contextmanager
def web_console(home: Path) -> Iterator[Console]:
    """Start one; it may still be on its way up."""
    data = home / "redis"
    port = valkey.free_port()
    server = valkey.start(data)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("REFLOAT_", "REDIS_"))}
    env |= {
        "REFLOAT_HOME": str(home),
        "REDIS_URL": server.url,
        "DJANGO_SETTINGS_MODULE": "dashboards.config.settings",
    }
    argv = [sys.executable, "-c", f"USERNAME, PASSWORD = {USERNAME!r}, {PASSWORD!r}{_PREPARE}"]
    made = subprocess.run(argv, cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    console = Console(f"http://127.0.0.1:{port}", made.stdout.strip(), server, data)
    with (home / "web.log").open("wb") as log:
        web = children.spawn(programs.web("127.0.0.1", port).argv, env=env, cwd=str(ROOT), log=log)
    try:
        yield console
    finally:
        children.stop([web])
        console.server.stop()
