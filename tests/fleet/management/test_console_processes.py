"""One command starts every program, keeps them alive, and leaves nothing behind."""

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
from tests.fakes.waiting import gone

_WEB = """
import http.server, os, sys
class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(os.environ["REDIS_URL"].encode())
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ok).serve_forever()
"""
_WORKER = "import time; time.sleep(600)"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that come up at once, in place of uvicorn and Celery."""

    def two(home: Path, host: str, port: int) -> tuple[Program, ...]:
        return (
            Program("web", (sys.executable, "-c", _WEB, str(port))),
            Program("worker-polls", (sys.executable, "-c", _WORKER)),
            Program("worker-actions", (sys.executable, "-c", _WORKER)),
        )

    monkeypatch.setattr(programs, "console", two)


@pytest.fixture
def said() -> list[str]:
    """What the terminal was told."""
    return []


@pytest.fixture
def make(tmp_path: Path, said: list[str], small: None) -> Iterator[Callable[[], ConsoleRun]]:
    """A console on a free port with its own home; every process it started must be gone at the end."""
    before = set(psutil.Process().children(recursive=True))
    yield lambda: ConsoleRun(
        tmp_path, "127.0.0.1", valkey.free_port(), redis_url=None, write_line=said.append
    )
    after = {child for child in psutil.Process().children(recursive=True) if not gone(child.pid)}
    assert after <= before


def test_run_serves_and_ends(make: Callable[[], ConsoleRun], tmp_path: Path) -> None:
    """Pages answer, an embedded Valkey runs; afterwards neither does."""
    with make() as run:
        run.start({})
        run.await_web()
        pids = [child.pid for child in run.supervisor.children]
        assert valkey.running_url(tmp_path / "valkey") is not None

    assert all(gone(pid) for pid in pids)
    assert valkey.running_url(tmp_path / "valkey") is None


def test_programs_that_no_page_needs_start_after_it(make: Callable[[], ConsoleRun]) -> None:
    """The first page does not wait for workers it has nothing from."""
    with make() as run:
        run.start({})
        first = [child.name for child in run.supervisor.children]
        run.await_web()

        assert first == ["web", "worker-polls"]
        assert [child.name for child in run.supervisor.children] == [*first, "worker-actions"]


def test_programs_get_the_redis_that_runs(make: Callable[[], ConsoleRun], tmp_path: Path) -> None:
    """They are told where Redis is, whatever file named it to us, and what the caller adds."""
    with make() as run:
        run.start({"REFLOAT_AUTHS": "a:1"})

        env = run.supervisor.children[0].env
        assert env is not None
        assert env["REDIS_URL"] == valkey.running_url(tmp_path / "valkey")
        assert env["REFLOAT_AUTHS"] == "a:1"
        assert env["REFLOAT_HOME"] == str(tmp_path)


def test_watch_starts_a_dead_program_again(make: Callable[[], ConsoleRun], said: list[str]) -> None:
    """A worker that dies is reported and runs again; the others are left alone."""
    with make() as run:
        run.start({})
        run.await_web()
        web, worker, _later = run.supervisor.children
        first, web_pid = worker.pid, web.pid
        worker.process.terminate()

        run.watch(lambda: run.supervisor.finish() if worker.pid != first and worker.is_alive() else None)

        assert web.pid == web_pid
    assert said[0].startswith("worker-polls was terminated by SIGTERM; restarting in 1 s")
    assert said[-1] == "worker-polls was restarted"


def test_watch_ends_with_sigterm(make: Callable[[], ConsoleRun]) -> None:
    """SIGTERM means end in order."""
    with make() as run:
        run.start({})

        run.watch(lambda: signal.raise_signal(signal.SIGTERM))

        assert run.supervisor.is_ending


def test_port_in_use_starts_nothing(make: Callable[[], ConsoleRun], tmp_path: Path) -> None:
    """The second console on a port never gets as far as a Valkey."""
    with make() as first:
        first.start({})
        first.await_web()
        second = ConsoleRun(tmp_path / "second", "127.0.0.1", first.port, redis_url=None, write_line=print)

        with pytest.raises(startup_checks.PrepareError, match="cannot listen"), second:
            pytest.fail("it started")

    assert not (tmp_path / "second").exists()


def test_redis_that_is_down_starts_nothing(tmp_path: Path) -> None:
    """A given Redis is asked first."""
    down = f"redis://127.0.0.1:{valkey.free_port()}/0"
    run = ConsoleRun(tmp_path, "127.0.0.1", valkey.free_port(), redis_url=down, write_line=print)

    with pytest.raises(startup_checks.PrepareError, match="does not answer"), run:
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
def test_url_is_one_a_browser_can_open(tmp_path: Path, host: str, url: str) -> None:
    """Nobody browses to 0.0.0.0."""
    assert ConsoleRun(tmp_path, host, 8123, redis_url=None, write_line=print).url == url


@pytest.mark.parametrize("error", [startup_checks.PrepareError("no luck"), SupervisorError("no luck")])
def test_one_line_exits_with_2(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """What stops a start is one line on stderr."""
    with pytest.raises(SystemExit) as left, exit_on_error():
        raise error

    assert left.value.code == 2
    assert capsys.readouterr().err == "refloat: no luck\n"


def test_stamped_begins_with_the_time() -> None:
    """Lines of a long-running command say when."""
    out = StringIO()

    make_timestamped_writer(out)("hello")

    assert re.fullmatch(r"\d\d:\d\d:\d\d hello\n", out.getvalue())
