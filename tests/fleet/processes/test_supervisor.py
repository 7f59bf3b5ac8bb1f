"""Several programs as one: readiness, failed starts, deaths, the order of the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.processes import pids
from fleet.processes.supervisor import (
    Child,
    InterruptedStartError,
    StartError,
    Supervisor,
    SupervisorError,
    is_json_ready,
)
from tests.fakes.waiting import eventually_sync

SLEEP = "import time; time.sleep(600)"
READY = 'print(\'noise\'); print(\'{"event":"ready","grpc":"127.0.0.1:1"}\', flush=True);' + SLEEP


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_await_ready_reads_the_ready_line(tmp_path: Path) -> None:
    """What the node announced is there, and what it printed before is no trouble."""
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("a", python(READY), ready=is_json_ready)
        seen: list[str] = []
        supervisor.await_ready(timeout=60, on_ready=lambda one: seen.append(one.name))
        assert child.ready_message["grpc"] == "127.0.0.1:1"
        assert seen == ["a"]
    assert pids.state(child.pid) is pids.ProcessState.DEAD


def test_await_ready_child_fails_names_it_its_words_and_its_log(tmp_path: Path) -> None:
    """One line says who failed, what it said last, and where the rest is; the others are ended."""
    with Supervisor(tmp_path) as supervisor:
        other = supervisor.start("good", python(SLEEP))
        supervisor.start("bad", python("import sys; sys.exit('no such port')"), ready=is_json_ready)
        with pytest.raises(StartError) as caught:
            supervisor.await_ready(timeout=60)
    assert str(caught.value) == (
        f"bad ended with exit code 1 before it was ready: no such port (log: {tmp_path / 'bad.log'})"
    )
    assert not other.is_alive()


def test_await_ready_too_slow_is_a_failed_start(tmp_path: Path) -> None:
    """A child that never gets ready does not hold the start for ever."""
    with Supervisor(tmp_path) as supervisor:
        supervisor.start("slow", python(SLEEP), ready=is_json_ready)
        with pytest.raises(StartError, match=r"slow was not ready within 0 s"):
            supervisor.await_ready(timeout=0.1)


def test_await_ready_interrupted_gives_up(tmp_path: Path) -> None:
    """Ctrl-C while starting ends the start at once."""

    def never(child: Child) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return False

    with Supervisor(tmp_path) as supervisor:
        supervisor.start("slow", python(SLEEP), ready=never)
        with pytest.raises(InterruptedStartError):
            supervisor.await_ready(timeout=60)


def test_start_no_such_program_says_so(tmp_path: Path) -> None:
    """A program that is not there is a sentence."""
    with Supervisor(tmp_path) as supervisor, pytest.raises(SupervisorError, match="cannot start /no/such"):
        supervisor.start("none", ["/no/such"])


def test_watch_reports_a_death_once_and_others_go_on(tmp_path: Path) -> None:
    """A child that dies is told of once; the watch goes on until somebody ends it."""
    deaths: list[str] = []
    with Supervisor(tmp_path) as supervisor:
        supervisor.start("dies", python("pass"))
        other = supervisor.start("lives", python(SLEEP))
        supervisor.await_ready(timeout=60)
        ticks = iter(range(100))

        def on_tick() -> None:
            if deaths and next(ticks) >= 2:
                assert other.is_alive()
                supervisor.finish()

        supervisor.watch(on_exit=lambda child: deaths.append(child.name), on_tick=on_tick)
    assert deaths == ["dies"]


def test_restart_waits_for_the_new_ready_line(tmp_path: Path) -> None:
    """A restarted child is ready when the new process says so, not because the old one had."""
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("a", python(READY), ready=is_json_ready)
        supervisor.await_ready(timeout=60)
        first = child.pid
        child.process.kill()
        eventually_sync(lambda: not child.is_alive())
        supervisor.restart(child)
        assert not child.ready_message
        supervisor.await_ready([child], timeout=60)
        assert child.pid != first
        assert child.ready_message


def test_stop_ends_higher_stages_first(tmp_path: Path) -> None:
    """The store outlives those who say goodbye to it."""
    order = tmp_path / "order"
    code = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        f"    open({str(order)!r}, 'a').write(sys.argv[1]); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        'print(\'{"event":"ready"}\', flush=True)\n'
        "time.sleep(600)"
    )
    with Supervisor(tmp_path) as supervisor:
        for name, stage in (("c", 0), ("a", 2), ("b", 1)):
            supervisor.start(name, [*python(code), name], stage=stage, ready=is_json_ready)
        supervisor.await_ready(timeout=60)
    assert order.read_text() == "abc"


def test_stop_a_frozen_child_ends_too(tmp_path: Path) -> None:
    """SIGSTOP does not save a child from the end."""
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("frozen", python(SLEEP))
        child.process.send_signal(signal.SIGSTOP)
        eventually_sync(lambda: pids.state(child.pid) is pids.ProcessState.FROZEN)
    assert not child.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_parent_killed_children_die_even_a_frozen_one(tmp_path: Path) -> None:
    """SIGKILL of the supervisor leaves no process behind."""
    code = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from fleet.processes.supervisor import Supervisor\n"
        f"with Supervisor(Path({str(tmp_path)!r})) as s:\n"
        f"    a = s.start('a', [sys.executable, '-S', '-c', {SLEEP!r}], on_parent_death=signal.SIGKILL)\n"
        "    a.process.send_signal(signal.SIGSTOP)\n"
        "    print(a.pid, flush=True)\n"
        "    s.watch(on_exit=print)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        eventually_sync(lambda: pids.state(child) is pids.ProcessState.FROZEN)
        parent.kill()
    eventually_sync(lambda: pids.state(child) is pids.ProcessState.DEAD)
