"""The console command starts every program, restarts dead ones, and leaves no process behind."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import psutil
import pytest

from fleet.management import programs, startup_checks
from fleet.management.console_processes import ConsoleRun, exit_on_error, make_timestamped_writer
from fleet.management.programs import Program
from fleet.processes import valkey
from fleet.processes.supervisor import SupervisorError
from tests.fakes.waiting import is_gone

_WEB_PROGRAM = """
import http.server, os, sys
class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(os.environ["REDIS_URL"].encode())
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ok).serve_forever()
"""
_WORKER_PROGRAM = "import time; time.sleep(600)"


@pytest.fixture
def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace uvicorn and Celery by programs that start at once."""

    def start_small_programs(home: Path, host: str, port: int) -> tuple[Program, ...]:
        return (
            Program("web", (sys.executable, "-c", _WEB_PROGRAM, str(port))),
            Program("worker-polls", (sys.executable, "-c", _WORKER_PROGRAM)),
            Program("worker-actions", (sys.executable, "-c", _WORKER_PROGRAM)),
        )

    monkeypatch.setattr(programs, "create_console_programs", start_small_programs)


@pytest.fixture
def lines() -> list[str]:
    """Return the list of lines written to the terminal."""
    return []


@pytest.fixture
def make_console(
    tmp_path: Path, lines: list[str], small_programs: None
) -> Iterator[Callable[[], ConsoleRun]]:
    """Yield a function that makes a console on a free port with its own home, and check that no process is left."""
    processes_before = set(psutil.Process().children(recursive=True))
    yield lambda: ConsoleRun(
        tmp_path, "127.0.0.1", valkey.find_free_port(), redis_url=None, write_line=lines.append
    )
    processes_after = {child for child in psutil.Process().children(recursive=True) if not is_gone(child.pid)}
    assert processes_after <= processes_before


def test_console_serves_pages_until_it_ends(make_console: Callable[[], ConsoleRun], tmp_path: Path) -> None:
    """Pages and an embedded Valkey respond; afterwards no process is left."""
    with make_console() as run:
        run.start({})
        run.await_web()
        pids = [child.pid for child in run.supervisor.children]
        assert valkey.running_url(tmp_path / "valkey") is not None

    assert all(is_gone(pid) for pid in pids)
    assert valkey.running_url(tmp_path / "valkey") is None


def test_programs_that_pages_do_not_need_start_later(make_console: Callable[[], ConsoleRun]) -> None:
    """The first page does not wait for workers that it does not use."""
    with make_console() as run:
        run.start({})
        first = [child.name for child in run.supervisor.children]
        run.await_web()

        assert first == ["web", "worker-polls"]
        assert [child.name for child in run.supervisor.children] == [*first, "worker-actions"]


def test_programs_get_the_redis_url_and_the_environment(
    make_console: Callable[[], ConsoleRun], tmp_path: Path
) -> None:
    """The programs get the URL of the running Redis and the variables of the caller."""
    with make_console() as run:
        run.start({"REFLOAT_AUTHS": "a:1"})

        env = run.supervisor.children[0].env
        assert env is not None
        assert env["REDIS_URL"] == valkey.running_url(tmp_path / "valkey")
        assert env["REFLOAT_AUTHS"] == "a:1"
        assert env["REFLOAT_HOME"] == str(tmp_path)


def test_dead_program_is_restarted(make_console: Callable[[], ConsoleRun], lines: list[str]) -> None:
    """The death and the restart are reported, and other programs keep running."""
    with make_console() as run:
        run.start({})
        run.await_web()
        web, worker, _later = run.supervisor.children
        first, web_pid = worker.pid, web.pid
        worker.process.terminate()

        run.watch(lambda: run.supervisor.finish() if worker.pid != first and worker.is_alive() else None)

        assert web.pid == web_pid
    assert lines[0].startswith("worker-polls was terminated by SIGTERM; restarting in 1 s")
    assert lines[-1] == "worker-polls was restarted"


def test_sigterm_ends_the_watch(make_console: Callable[[], ConsoleRun]) -> None:
    """The console ends in order."""
    with make_console() as run:
        run.start({})

        run.watch(lambda: signal.raise_signal(signal.SIGTERM))

        assert run.supervisor.is_ending


def test_port_in_use_stops_the_start(make_console: Callable[[], ConsoleRun], tmp_path: Path) -> None:
    """The second console on a port starts no Valkey."""
    with make_console() as first:
        first.start({})
        first.await_web()
        second = ConsoleRun(tmp_path / "second", "127.0.0.1", first.port, redis_url=None, write_line=print)

        with pytest.raises(startup_checks.PrepareError, match="cannot listen"), second:
            pytest.fail("it started")

    assert not (tmp_path / "second").exists()


def test_unreachable_redis_stops_the_start(tmp_path: Path) -> None:
    """A configured Redis is checked first."""
    unreachable_url = f"redis://127.0.0.1:{valkey.find_free_port()}/0"
    run = ConsoleRun(
        tmp_path, "127.0.0.1", valkey.find_free_port(), redis_url=unreachable_url, write_line=print
    )

    with pytest.raises(startup_checks.PrepareError, match="does not respond"), run:
        pytest.fail("it started")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8123/"),
        ("0.0.0.0", "http://127.0.0.1:8123/"),
        ("::", "http://127.0.0.1:8123/"),
        ("::1", "http://[::1]:8123/"),
    ],
)
def test_url_can_be_opened_in_a_browser(tmp_path: Path, host: str, url: str) -> None:
    """A wildcard address is replaced by a loopback address."""
    assert ConsoleRun(tmp_path, host, 8123, redis_url=None, write_line=print).url == url


@pytest.mark.parametrize("error", [startup_checks.PrepareError("no luck"), SupervisorError("no luck")])
def test_start_error_is_one_line_and_code_2(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors that stop a start have no traceback."""
    with pytest.raises(SystemExit) as caught, exit_on_error():
        raise error

    assert caught.value.code == 2
    assert capsys.readouterr().err == "refloat: no luck\n"


def test_timestamped_line_starts_with_the_time() -> None:
    """Lines of a long-running command show their time."""
    out = StringIO()

    make_timestamped_writer(out)("hello")

    assert re.fullmatch(r"\d\d:\d\d:\d\d hello\n", out.getvalue())
