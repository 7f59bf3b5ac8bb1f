"""A real demo in its own home folder, with the same processes as `make demo`."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from fleet.processes import valkey
from tests.fakes.waiting import eventually_sync, is_gone
from tests.meta.house import ROOT

#: A fleet of two auths and two proxies: one of each can fail, and half the agents with it.
AGENTS = 40
#: Seconds for a demo to come up on a machine that does other things too.
START_TIMEOUT = 300.0


@dataclass
class Demo:
    """A running demo, with the actions of a person or a script."""

    home: Path
    process: subprocess.Popen[bytes]
    url: str
    token: str
    password: str

    def request(self, path: str) -> tuple[int, bytes]:
        """Return status and body of a GET request under /api/v1/."""
        return self._request(f"/api/v1/{path}")

    def metrics(self) -> str:
        """Return the text of the console's metrics."""
        status, body = self._request("/metrics")
        assert status == 200, f"{status} {body[:500]!r}"
        return body.decode()

    @contextmanager
    def collect_frames(self) -> Iterator[list[str | bytes]]:
        """Collect the frames of the live socket until the block ends, the newest last."""
        frames: list[str | bytes] = []
        address = f"{self.url.rstrip('/').replace('http', 'ws', 1)}/ws/fleet/"
        token = {"Authorization": f"Bearer {self.token}"}
        with connect(address, additional_headers=token, open_timeout=60, ping_timeout=None) as link:

            def listen() -> None:
                with suppress(ConnectionClosed):
                    frames.extend(link)

            listener = threading.Thread(target=listen, daemon=True)
            listener.start()
            yield frames
        listener.join()

    def _request(self, path: str) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def status(self, path: str) -> int:
        """Return the status of a GET request under /api/v1/."""
        return self.request(path)[0]

    def get(self, path: str) -> Any:
        """Return the JSON of a GET request under /api/v1/. Raises AssertionError when it is refused."""
        status, body = self.request(path)
        assert status == 200, f"{path}: {status} {body[:500]!r}"
        return json.loads(body)

    def counts(self) -> dict[str, int]:
        """Return the number of agents by verdict, without zeros; empty while the record cannot be read."""
        status, body = self.request("fleet/summary")
        assert status in (200, 503), f"{status} {body[:500]!r}"
        counts = json.loads(body)["counts"] if status == 200 else {}
        return {slug: count for slug, count in counts.items() if count}

    def fleet(self, *args: str) -> str:
        """Run `refloat fleet …` and return its output."""
        process = subprocess.run(
            [sys.executable, "-m", "fleet.cli", "fleet", *args, "--home", str(self.home)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    def await_counts(self, expected: dict[str, int], *, seconds: float = 120.0) -> None:
        """Wait until the API counts exactly this."""
        eventually_sync(lambda: self.counts() == expected, seconds=seconds)

    def processes(self) -> list[psutil.Process]:
        """Return the demo's process and all its descendants."""
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def pollers(self) -> list[psutil.Process]:
        """Return the Celery processes: every worker, and beat."""
        return [process for process in self.processes() if "celery" in process.cmdline()]

    def terminal_text(self) -> str:
        """Return the text in the demo's terminal."""
        return (self.home / "terminal.log").read_text(errors="replace")

    def stop(self) -> None:
        """Stop the demo as Ctrl-C does, and check that no process is left."""
        family = self.processes() if self.process.poll() is None else []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=180)
        eventually_sync(lambda: all(is_gone(process.pid) for process in family))


def start_demo(home: Path, *flags: str, **settings: str) -> Demo:
    """Run `manage.py demo` with its state in `home`, until its pages answer; `settings` go into its environment."""
    argv = [sys.executable, "manage.py", "demo", "--port", str(valkey.find_free_port()), *flags]
    return _start(home, argv, settings)


def start_demo_by_make(home: Path, *flags: str, **variables: str) -> Demo:
    """Run `make demo` with variables such as FAULTS, in a process group of its own, and otherwise like `start_demo`."""
    arguments = " ".join(["--port", str(valkey.find_free_port()), *flags])
    # Its own environment: a given VENV is never changed.
    variables = {**variables, "VENV": sys.prefix, "ARGS": arguments}
    argv = ["make", "demo", *(f"{name}={value}" for name, value in variables.items())]
    return _start(home, argv, {}, start_new_session=True)


def _start(
    home: Path, argv: list[str], settings: Mapping[str, str], *, start_new_session: bool = False
) -> Demo:
    home.mkdir(parents=True, exist_ok=True)
    # A make around the tests would give its own variables to that of a test.
    own_prefixes = ("REFLOAT_", "REDIS_", "DATABASE_", "DJANGO_", "MAKE", "MFLAGS")
    env = {name: value for name, value in os.environ.items() if not name.startswith(own_prefixes)}
    with (home / "terminal.log").open("wb") as terminal:
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env={**env, "REFLOAT_HOME": str(home), **settings},
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.STDOUT,
            start_new_session=start_new_session,
        )
    log = home / "terminal.log"

    def has_started_or_ended() -> bool:
        return process.poll() is not None or "Ctrl-C stops everything" in log.read_text()

    try:
        eventually_sync(has_started_or_ended, seconds=START_TIMEOUT)
        assert process.poll() is None, log.read_text()
    except BaseException:
        process.kill()
        process.wait()
        raise
    account = json.loads((home / "demo.json").read_text())
    return Demo(home, process, account["url"], account["token"], account["password"])
