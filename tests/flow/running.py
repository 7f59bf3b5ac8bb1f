"""A real demo in a home of its own: every process, every port and every byte as `make demo` has them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from fleet.processes import valkey
from tests.fakes.waiting import eventually_sync, gone
from tests.meta.house import ROOT

#: A fleet of two auths and two proxies: one of each can fail, and half the agents with it.
AGENTS = 40
#: Seconds for a demo to come up on a machine that does other things too.
START_TIMEOUT = 300.0


@dataclass
class Demo:
    """A running demo, and what a person or a script does with it."""

    home: Path
    process: subprocess.Popen[bytes]
    url: str
    token: str
    password: str

    def ask(self, path: str) -> tuple[int, bytes]:
        """Status and body of what the API answers under /api/v1/."""
        return self._ask(f"/api/v1/{path}")

    def metrics(self) -> str:
        """The metrics of the console."""
        status, body = self._ask("/metrics")
        assert status == 200, f"{status} {body[:500]!r}"
        return body.decode()

    @contextmanager
    def watching(self) -> Iterator[list[str | bytes]]:
        """Listen on the live link for as long as the block lasts; the frames that came, the newest last."""
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

    def _ask(self, path: str) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        asked = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        try:
            asked.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            answer = asked.getresponse()
            return answer.status, answer.read()
        finally:
            asked.close()

    def status(self, path: str) -> int:
        """The status of what the API answers."""
        return self.ask(path)[0]

    def get(self, path: str) -> Any:
        """The JSON the API answers. Raises AssertionError when it refuses."""
        status, body = self.ask(path)
        assert status == 200, f"{path}: {status} {body[:500]!r}"
        return json.loads(body)

    def counts(self) -> dict[str, int]:
        """Agents by verdict, those with none left out; empty while the record cannot be read."""
        status, body = self.ask("fleet/summary")
        assert status in (200, 503), f"{status} {body[:500]!r}"
        counts = json.loads(body)["counts"] if status == 200 else {}
        return {slug: count for slug, count in counts.items() if count}

    def fleet(self, *words: str) -> str:
        """What `refloat fleet …` prints."""
        done = subprocess.run(
            [sys.executable, "-m", "fleet.cli", "fleet", *words, "--home", str(self.home)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def await_counts(self, wanted: dict[str, int], *, seconds: float = 120.0) -> None:
        """Wait until the API counts exactly this."""
        eventually_sync(lambda: self.counts() == wanted, seconds=seconds)

    def family(self) -> list[psutil.Process]:
        """Every process that runs because this one does, itself included."""
        mine = psutil.Process(self.process.pid)
        return [mine, *mine.children(recursive=True)]

    def pollers(self) -> list[psutil.Process]:
        """Celery: every worker, and beat."""
        return [process for process in self.family() if "celery" in process.cmdline()]

    def said(self) -> str:
        """What its terminal shows."""
        return (self.home / "terminal.log").read_text(errors="replace")

    def end(self) -> None:
        """End it as Ctrl-C does, and see that nothing is left."""
        family = self.family() if self.process.poll() is None else []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=180)
        eventually_sync(lambda: all(gone(process.pid) for process in family))


def start_demo(home: Path, *flags: str, **settings: str) -> Demo:
    """Run `manage.py demo` with its state in `home`, until its pages answer; `settings` go into its environment."""
    home.mkdir(parents=True, exist_ok=True)
    ours = ("REFLOAT_", "REDIS_", "DATABASE_", "DJANGO_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    with (home / "terminal.log").open("wb") as terminal:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "demo", "--port", str(valkey.free_port()), *flags],
            cwd=ROOT,
            env={**env, "REFLOAT_HOME": str(home), **settings},
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.STDOUT,
        )
    log = home / "terminal.log"

    def up_or_over() -> bool:
        return process.poll() is not None or "Ctrl-C stops everything" in log.read_text()

    try:
        eventually_sync(up_or_over, seconds=START_TIMEOUT)
        assert process.poll() is None, log.read_text()
    except BaseException:
        process.kill()
        process.wait()
        raise
    account = json.loads((home / "demo.json").read_text())
    return Demo(home, process, account["url"], account["token"], account["password"])
