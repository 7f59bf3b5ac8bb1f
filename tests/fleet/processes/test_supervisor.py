"""Several programs under one supervisor: readiness, failed starts, deaths and the order of the shutdown."""

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
    has_ready_line,
)
from tests.fakes.waiting import eventually_sync

SLEEP_CODE = "import time; time.sleep(600)"
READY_CODE = 'print(\'noise\'); print(\'{"event":"ready","grpc":"127.0.0.1:1"}\', flush=True);' + SLEEP_CODE


def python_command(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_ready_line_is_read_from_the_output(tmp_path: Path) -> None:
    """Output before the ready line is skipped."""
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("a", python_command(READY_CODE), readiness_probe=has_ready_line)
        ready_names: list[str] = []
        supervisor.await_ready(timeout=60, on_ready=lambda ready_child: ready_names.append(ready_child.name))
        assert child.ready_message["grpc"] == "127.0.0.1:1"
        assert ready_names == ["a"]
    assert pids.state(child.pid) is pids.ProcessState.DEAD


def test_failed_start_names_child_reason_and_log(tmp_path: Path) -> None:
    """The error has the last output line, and the other children are ended."""
    with Supervisor(tmp_path) as supervisor:
        other_child = supervisor.start("good", python_command(SLEEP_CODE))
        supervisor.start(
            "bad", python_command("import sys; sys.exit('no such port')"), readiness_probe=has_ready_line
        )
        with pytest.raises(StartError) as caught:
            supervisor.await_ready(timeout=60)
    assert str(caught.value) == (
        f"bad ended with exit code 1 before it was ready: no such port (log: {tmp_path / 'bad.log'})"
    )
    assert not other_child.is_alive()


def test_child_that_is_not_ready_in_time_fails_the_start(tmp_path: Path) -> None:
    """The start does not wait for ever."""
    with Supervisor(tmp_path) as supervisor:
        supervisor.start("slow", python_command(SLEEP_CODE), readiness_probe=has_ready_line)
        with pytest.raises(StartError, match=r"slow was not ready within 0 s"):
            supervisor.await_ready(timeout=0.1)


def test_interrupted_start_ends_at_once(tmp_path: Path) -> None:
    """Ctrl-C during the start raises InterruptedStartError."""

    def interrupt(child: Child) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return False

    with Supervisor(tmp_path) as supervisor:
        supervisor.start("slow", python_command(SLEEP_CODE), readiness_probe=interrupt)
        with pytest.raises(InterruptedStartError):
            supervisor.await_ready(timeout=60)


def test_log_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    """Nothing starts; the file stays."""
    (tmp_path / "log").write_text("mine")
    with (
        pytest.raises(SupervisorError, match=r"log is a file, and logs need a folder"),
        Supervisor(tmp_path / "log"),
    ):
        raise AssertionError("nothing starts")
    with (
        pytest.raises(SupervisorError, match=r"cannot create the folder of the logs, .*: Not a directory"),
        Supervisor(tmp_path / "log" / "inner"),
    ):
        raise AssertionError("nothing starts")
    assert (tmp_path / "log").read_text() == "mine"


def test_log_that_is_a_folder_is_named(tmp_path: Path) -> None:
    """The error has the path and the reason."""
    (tmp_path / "a.log").mkdir()
    with (
        Supervisor(tmp_path) as supervisor,
        pytest.raises(SupervisorError, match=r"cannot write the log .*a\.log: Is a directory"),
    ):
        supervisor.start("a", python_command(SLEEP_CODE))


def test_missing_program_is_named(tmp_path: Path) -> None:
    """The error is a SupervisorError."""
    with Supervisor(tmp_path) as supervisor, pytest.raises(SupervisorError, match="cannot start /no/such"):
        supervisor.start("none", ["/no/such"])


def test_ended_child_is_reported_once_and_others_keep_running(tmp_path: Path) -> None:
    """The watch continues until `finish` is called."""
    ended_names: list[str] = []
    with Supervisor(tmp_path) as supervisor:
        supervisor.start("dies", python_command("pass"))
        other_child = supervisor.start("lives", python_command(SLEEP_CODE))
        supervisor.await_ready(timeout=60)
        ticks = iter(range(100))

        def on_tick() -> None:
            if ended_names and next(ticks) >= 2:
                assert other_child.is_alive()
                supervisor.finish()

        supervisor.watch(on_exit=lambda child: ended_names.append(child.name), on_tick=on_tick)
    assert ended_names == ["dies"]


def test_restarted_child_is_ready_after_its_new_ready_line(tmp_path: Path) -> None:
    """The ready line of the old process does not count."""
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("a", python_command(READY_CODE), readiness_probe=has_ready_line)
        supervisor.await_ready(timeout=60)
        first = child.pid
        child.process.kill()
        eventually_sync(lambda: not child.is_alive())
        supervisor.restart(child)
        assert not child.ready_message
        supervisor.await_ready([child], timeout=60)
        assert child.pid != first
        assert child.ready_message


def test_higher_stages_end_first(tmp_path: Path) -> None:
    """The backend outlives the programs that deregister from it."""
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
            supervisor.start(name, [*python_command(code), name], stage=stage, readiness_probe=has_ready_line)
        supervisor.await_ready(timeout=60)
    assert order.read_text() == "abc"


def test_frozen_child_is_ended(tmp_path: Path) -> None:
    """A process stopped by SIGSTOP ends as well."""
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("frozen", python_command(SLEEP_CODE))
        child.process.send_signal(signal.SIGSTOP)
        eventually_sync(lambda: pids.state(child.pid) is pids.ProcessState.FROZEN)
    assert not child.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_children_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    """SIGKILL of the supervisor leaves no process behind, even a frozen one."""
    code = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from fleet.processes.supervisor import Supervisor\n"
        f"with Supervisor(Path({str(tmp_path)!r})) as s:\n"
        f"    a = s.start('a', [sys.executable, '-S', '-c', {SLEEP_CODE!r}], on_parent_death=signal.SIGKILL)\n"
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
