"""A console of separate processes, two of each, with PostgreSQL and Valkey of their own; each of them may be killed."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
from typing_extensions import override

from fleet.management import programs
from fleet.management.programs import Program
from fleet.processes import children, valkey
from fleet.processes.valkey import Valkey
from tests.flow.postgres import Database
from tests.meta.house import ROOT
from tests.soak.console import SoakConsole, UnavailableError

#: Programs, two of each; and the servers, one of each.
PROGRAMS = tuple(
    f"{name}-{number}"
    for name in ("web", "worker-polls", "worker-actions", "beat", "alerts")
    for number in (1, 2)
)
SERVERS = ("valkey", "postgres")
_START_TIMEOUT = 300.0


class ExternalConsole(SoakConsole):
    """Two of every program as `deploy/` runs them; nothing restarts them but the soak."""

    def __init__(
        self, home: Path, settings: Mapping[str, str], hook_url: str, database: Database, redis_port: int
    ) -> None:
        self._redis_port = redis_port
        self._valkey: Valkey = valkey.start(home / "redis", port=redis_port)
        servers = {"DATABASE_URL": database.url, "REDIS_URL": self._valkey.url}
        super().__init__(home, {**settings, **servers}, hook_url)
        self._database = database
        self._ports = {"web-1": self.port, "web-2": valkey.find_free_port()}
        self._programs: dict[str, subprocess.Popen[bytes]] = {}

    @override
    def start(self) -> None:
        """Prepare the database, and start all programs until both web servers answer."""
        self._prepare()
        (self.home / "log").mkdir(exist_ok=True)
        for name in PROGRAMS:
            self._spawn(name)
        deadline = time.monotonic() + _START_TIMEOUT
        silent_names = set(self._ports)
        while silent_names:
            assert time.monotonic() < deadline, f"{silent_names} did not answer"
            for name in sorted(silent_names):
                with suppress(UnavailableError):
                    self._request(name, "GET", "version")
                    silent_names.discard(name)
            time.sleep(0.2)

    @override
    def stop(self) -> None:
        """Stop the programs, then Valkey."""
        children.stop(list(self._programs.values()), grace=60.0)
        self._valkey.stop()

    @property
    @override
    def logs(self) -> list[Path]:
        """The logs of the programs and of Valkey; PostgreSQL's belongs to its own user."""
        return [*self.home.glob("log/*.log"), *self.home.glob("redis/*.log")]

    @override
    def processes(self) -> dict[str, psutil.Process]:
        """Return the programs that run, and Valkey, by name."""
        processes = {name: process for name, process in self._programs.items() if process.poll() is None}
        processes["valkey"] = self._valkey.process
        return {
            name: psutil.Process(process.pid) for name, process in processes.items() if process.poll() is None
        }

    @override
    def kill(self, name: str) -> None:
        """Kill a program or server with SIGKILL; it stays down until `restart`."""
        if name == "postgres":
            self._database.kill()
            return
        process = self._valkey.process if name == "valkey" else self._programs[name]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def restart(self, name: str) -> None:
        """Start a killed program or server again."""
        if name == "postgres":
            self._database.restart()
        elif name == "valkey":
            self._valkey = valkey.start(self.home / "redis", port=self._redis_port)
        else:
            self._spawn(name)

    @override
    def get(self, path: str) -> Any:
        """Return the JSON of a GET request to the first web server that answers, as behind a load balancer."""
        return self.send("GET", path)

    def send(self, method: str, path: str, body: object = None, if_match: str = "") -> Any:
        """Return the JSON of a request to the first web server that accepts connections. Raises UnavailableError."""
        error = UnavailableError("no web server runs")
        for name in self._ports:
            if self._programs[name].poll() is not None:
                continue
            try:
                return self._request(name, method, path, body, if_match)
            except UnavailableError as refusal:
                error = refusal
                if method != "GET":
                    raise
        raise error

    @override
    def count_rows(self) -> dict[str, int]:
        """Return the number of rows of each table of the database."""
        names = self._database.query("select tablename from pg_tables where schemaname = 'public'")
        return {
            name: int(self._database.query(f'select count(*) from "{name}"')[0][0])
            for (name,) in names
            if name.startswith(("fleet_", "django_session"))
        }

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows that PostgreSQL answers."""
        return self._database.query(statement)

    @override
    def _redis_url(self) -> str | None:
        return self._valkey.url

    def _request(self, name: str, method: str, path: str, body: object = None, if_match: str = "") -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[name], timeout=60.0)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        headers |= {"If-Match": if_match} if if_match else {}
        try:
            with closing(connection):
                payload = None if body is None else json.dumps(body)
                connection.request(method, f"/api/v1/{path}", payload, headers)
                answer = connection.getresponse()
                text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"{name} {path}: {error!r}") from error
        if answer.status >= 300:
            raise UnavailableError(f"{name} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text)

    def _spawn(self, name: str) -> None:
        with (self.home / "log" / f"{name}.log").open("ab") as log:
            argv = self._program_of(name).argv
            self._programs[name] = children.spawn(argv, env=self.env, cwd=str(ROOT), log=log)

    def _program_of(self, name: str) -> Program:
        kind, _, number = name.rpartition("-")
        match kind:
            case "web":
                return programs.create_web_program("127.0.0.1", self._ports[name])
            case "beat":
                return programs.create_beat_program(self.home / f"beat-schedule-{number}")
            case "alerts":
                return programs.create_alerts_program()
        program = programs.create_worker_program(kind.removeprefix("worker-"), kind.removeprefix("worker-"))
        argv: Sequence[str] = [part.replace("@%h", f"-{number}@%h") for part in program.argv]
        return Program(name, tuple(argv))
