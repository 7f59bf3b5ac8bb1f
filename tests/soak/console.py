"""The console of a soak: its programs under one command, a client of its API, its database and its Redis."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import redis

from fleet.processes import children, valkey
from tests.fakes.waiting import eventually_sync, is_gone
from tests.meta.house import ROOT
from tests.soak.fleet import await_text, count_keys

_START_TIMEOUT = 300.0
_REQUEST_TIMEOUT = 60.0
_SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "dashboards.config.settings",
    "PYTHONUNBUFFERED": "1",
    # A poll of a machine that does other things too takes a second.
    "REFLOAT_ROUND_INTERVAL": "2.0",
    "REFLOAT_ROUND_DEADLINE": "1.8",
}
#: How a program is found among the processes, by a word of its command line.
MARKS = {
    "web": "dashboards.config.asgi:application",
    "worker-polls": "polls@",
    "worker-actions": "actions@",
    "beat": "dashboards.config.beat",
    "alerts": "alerts",
    "valkey": "valkey",
}

#: Everything in one process: each start of Django costs seconds. Alert rules wait a tenth as long, so that a fault of
#: half a minute has an incident; a single stranded agent is enough; a webhook gets every notification.
_PREPARE = """
import sys
import django; django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db.models import F
from fleet.models.alerting import AlertRule, Channel, Route
call_command("migrate", verbosity=0)
User.objects.create_superuser("soak", password="correct horse battery")
AlertRule.objects.update(group_wait=2.0, recover_seconds=5.0)
AlertRule.objects.filter(kind__in=("stranded", "at-risk")).update(min_count=1, min_share=0.0)
AlertRule.objects.filter(pending_seconds__gt=0).update(pending_seconds=F("pending_seconds") / 10)
channel = Channel.objects.create(
    cluster="", name="soak", kind="webhook", config={"url": sys.argv[1]}, allow_private=True, per_minute=1000
)
for route in Route.objects.all():
    route.channels.add(channel)
call_command("token", "create", "soak", "--name", "soak", "--scope", "view_fleet", "--scope", "act_on_fleet",
             "--scope", "change_config")
"""


class UnavailableError(Exception):
    """The console did not answer a request."""


class SoakConsole:
    """A console that polls a fleet: `manage.py console`, which restarts its programs."""

    def __init__(self, home: Path, settings: Mapping[str, str], hook_url: str) -> None:
        self.home = home
        self.port = valkey.find_free_port()
        self._hook_url = hook_url
        own_prefixes = ("REFLOAT_", "REDIS_", "DATABASE_", "DJANGO_")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(own_prefixes)}
        self.env |= {**_SETTINGS, "REFLOAT_HOME": str(home), **settings}
        self._token = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Prepare the database and start all programs."""
        self._prepare()
        log = self.home / "console.log"
        with log.open("wb") as output:
            argv = (sys.executable, "manage.py", "console", "--port", str(self.port))
            self._process = children.spawn(argv, env=self.env, cwd=str(ROOT), log=output)
        await_text(self._process, log, "Ctrl-C stops everything", _START_TIMEOUT)

    def stop(self) -> None:
        """Stop all programs, and check that no process is left."""
        if self._process is None:
            return
        family = list(self._family()) if self._process.poll() is None else []
        children.stop([self._process], grace=60.0)
        eventually_sync(lambda: all(is_gone(process.pid) for process in family))

    @property
    def url(self) -> str:
        """The URL of the pages."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def logs(self) -> list[Path]:
        """The logs of all its processes."""
        return [self.home / "console.log", *self.home.glob("log/*.log"), *self.home.glob("valkey/*.log")]

    def processes(self) -> dict[str, psutil.Process]:
        """Return the processes that run, by name."""
        assert self._process is not None
        processes = {"console": psutil.Process(self._process.pid)}
        for process in self._family():
            name = _name_of(process)
            if name and process.pid != self._process.pid:
                processes[name] = process
        return processes

    def kill(self, name: str) -> None:
        """Kill a program with SIGKILL and wait until another one runs in its place."""
        old = self.processes()[name]
        old.send_signal(signal.SIGKILL)

        def has_successor() -> bool:
            process = self.processes().get(name)
            return process is not None and process.pid != old.pid

        eventually_sync(has_successor, seconds=_START_TIMEOUT)

    def get(self, path: str) -> Any:
        """Return the JSON of a GET request under /api/v1/. Raises UnavailableError unless it is answered."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", urlsplit(self.url).port, timeout=_REQUEST_TIMEOUT
        )
        try:
            with closing(connection):
                connection.request(
                    "GET", f"/api/v1/{path}", headers={"Authorization": f"Bearer {self._token}"}
                )
                answer = connection.getresponse()
                body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"{path}: {error!r}") from error
        if answer.status != 200:
            raise UnavailableError(f"{path}: {answer.status} {body[:300]!r}")
        return json.loads(body)

    def count_rows(self) -> dict[str, int]:
        """Return the number of rows of each table of the database."""
        with closing(sqlite3.connect(self.home / "refloat.sqlite3", timeout=60)) as database:
            tables = database.execute("select name from sqlite_master where type = 'table'").fetchall()
            return {
                name: database.execute(f'select count(*) from "{name}"').fetchone()[0]
                for (name,) in tables
                if name.startswith(("fleet_", "django_session"))
            }

    def count_keys(self) -> dict[str, int]:
        """Return the number of keys in Redis by kind; empty while it does not answer."""
        url = self._redis_url()
        if url is None:
            return {}
        try:
            with redis.Redis.from_url(url, socket_timeout=5.0) as client:
                return count_keys(client)
        except redis.RedisError:
            return {}

    def _redis_url(self) -> str | None:
        return valkey.running_url(self.home / "valkey")

    def _prepare(self) -> None:
        process = subprocess.run(
            [sys.executable, "-c", _PREPARE, self._hook_url],
            env=self.env, cwd=ROOT, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert process.returncode == 0, process.stderr
        self._token = process.stdout.strip().splitlines()[-1]

    def _family(self) -> list[psutil.Process]:
        assert self._process is not None
        root = psutil.Process(self._process.pid)
        return [root, *root.children(recursive=True)]


def _name_of(process: psutil.Process) -> str:
    """Return the name of a program by its command line; empty for another process."""
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return ""
    return next((name for name, mark in MARKS.items() if mark in line), "")
