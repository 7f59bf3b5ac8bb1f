"""Run all programs of the console under one command: prepare, start, restart after a crash, stop."""

from __future__ import annotations

import contextlib
import http
import http.client
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO
from urllib.parse import urlsplit

from fleet.management import forked_programs, programs, startup_checks
from fleet.management.programs import Program
from fleet.processes.child_restarter import ChildRestarter
from fleet.processes.log_format import escape_unprintable
from fleet.processes.supervisor import Child, Supervisor, SupervisorError

#: Seconds until the web server must answer; measured: about 2 s.
_WEB_TIMEOUT = 60.0
#: Stop order, highest first: the console stops before the fleet and Redis.
STAGE_CONSOLE = 2
STAGE_FLEET = 1


class ConsoleRun:
    """The running console of one REFLOAT_HOME.

    with ConsoleRun(home, host, port, redis_url=None, write_line=print) as run:
        startup_checks.prepare_database()
        run.start({})
        run.await_web()
        run.watch()
    """

    def __init__(
        self, home: Path, host: str, port: int, *, redis_url: str | None, write_line: Callable[[str], None]
    ) -> None:
        self.home = home
        self.host = host
        self.port = port
        self.write_line = write_line
        self.supervisor = Supervisor(logs=home / "log")
        self.restarter = ChildRestarter(self.supervisor, write_line)
        self._redis_url = redis_url
        self._env: dict[str, str] = {}
        self._exit_stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        startup_checks.check_settings()
        startup_checks.check_port(self.host, self.port)
        with contextlib.ExitStack() as exit_stack:
            exit_stack.enter_context(startup_checks.share_home(self.home))
            exit_stack.enter_context(startup_checks.claim_console(self.home))
            # Redis starts first, so that it stops last: workers cannot shut down cleanly without their broker.
            self._redis = startup_checks.RunningRedis(self._redis_url, self.home)
            exit_stack.callback(self._redis.stop)
            exit_stack.enter_context(self.supervisor)
            self._exit_stack = exit_stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit_stack.close()

    @property
    def redis_url(self) -> str:
        """The URL of Redis, or of the embedded Valkey."""
        return self._redis.url

    @property
    def url(self) -> str:
        """The URL of the pages for a browser on this machine."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::", ""} else self.host  # noqa: S104 - compared, not bound
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def start(self, env: Mapping[str, str]) -> None:
        """Start the programs that pages need, with `env` added to the environment of this process."""
        self._env = {**os.environ, "REFLOAT_HOME": str(self.home), **env, "REDIS_URL": self._redis.url}
        self._env.setdefault("REFLOAT_PUBLIC_URL", self.url)
        self._env.pop("REDIS_URL_FILE", None)  # it would take precedence over REDIS_URL
        if any(forked_programs.can_fork(program.argv) for program in self._programs):
            forked_programs.import_shared_modules()
        self._start(program for program in self._programs if program.name in programs.FIRST_PROGRAMS)

    def await_web(self) -> None:
        """Wait until the web server answers, then start the other programs. Raises SupervisorError."""
        web_children = [child for child in self.supervisor.children if child.name == "web"]
        self.supervisor.await_ready(web_children, timeout=_WEB_TIMEOUT)
        self._start(program for program in self._programs if program.name not in programs.FIRST_PROGRAMS)

    def watch(self, on_tick: Callable[[], None] | None = None) -> None:
        """Restart programs that end, until Ctrl-C or SIGTERM; call `on_tick` twice a second."""

        def tick() -> None:
            self.restarter.tick()
            if sentence := self._redis.restart_if_dead():
                self.write_line(sentence)
            if on_tick is not None:
                on_tick()

        self.supervisor.watch(on_exit=self.restarter.on_exit, on_tick=tick)

    @property
    def _programs(self) -> tuple[Program, ...]:
        return programs.create_console_programs(self.home, self.host, self.port)

    def _start(self, console_programs: Iterable[Program]) -> None:
        for program in console_programs:
            self.supervisor.start(
                program.name,
                program.argv,
                env=self._env,
                stage=STAGE_CONSOLE,
                readiness_probe=self._is_web_ready if program.name == "web" else None,
                # SIGKILL loses no data, and a worker without its broker is slow to stop.
                on_parent_death=signal.SIGKILL,
                spawn=forked_programs.create_spawner(program.name)
                if forked_programs.can_fork(program.argv)
                else None,
            )

    def _is_web_ready(self, child: Child) -> bool:
        parts = urlsplit(self.url)
        http_connection = http.client.HTTPConnection(parts.hostname or "", self.port, timeout=1.0)
        try:
            http_connection.request("GET", "/healthz")
            return http_connection.getresponse().status < http.HTTPStatus.INTERNAL_SERVER_ERROR
        except (OSError, http.client.HTTPException):
            return False
        finally:
            http_connection.close()


@contextlib.contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn a start error into one line on stderr and exit code 2."""
    try:
        yield
    except (startup_checks.PrepareError, SupervisorError) as error:
        sys.stderr.write(f"refloat: {error}\n")
        raise SystemExit(2) from None


def make_timestamped_writer(stream: TextIO) -> Callable[[str], None]:
    """Return a `write_line` that writes lines with a UTC time stamp and flushes each line."""

    def write_line(line: str) -> None:
        stream.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {escape_unprintable(line)}\n")
        stream.flush()

    return write_line
