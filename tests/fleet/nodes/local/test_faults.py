"""Faults injected into a real forwarder and a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleet.cli.local.fleet import restart
from fleet.cli.main import main
from fleet.nodes.local import faults, record
from fleet.nodes.local.faults import FaultError
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.record import FleetRecord, Member, UnknownNameError
from fleet.processes import pids
from fleet.processes.pids import ProcessState
from fleet.processes.supervisor import Supervisor, has_ready_line
from tests.fakes.waiting import eventually_sync

TOKEN = "let-me"
_PARTS = ("grpc", "diag", "connect", "backend")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetRecord]:
    """Return the record of a fleet with a forwarder and a sleeping process in the place of proxy-1."""
    with Supervisor(tmp_path_factory.mktemp("logs")) as supervisor:
        argv = [sys.executable, "-m", "fleet.nodes", "forwarder"]
        for part in _PARTS:
            argv += ["--forward", f"proxy-1/{part}=127.0.0.1:0,127.0.0.1:9"]
        forwarder = supervisor.start(
            "forwarder",
            argv,
            env={**os.environ, "REFLOAT_FORWARDER_TOKEN": TOKEN},
            readiness_probe=has_ready_line,
        )
        sleeper = supervisor.start("sleeper", [sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        supervisor.await_ready(timeout=60)
        yield FleetRecord(
            cluster="default",
            pid=os.getpid(),
            born=None,
            started_at=0.0,
            agents=0,
            backend="",
            auth_balancer="",
            proxy_balancer="",
            control=forwarder.ready_message["control"],
            token=TOKEN,
            members=(
                Member("proxy-1", "proxy", sleeper.pid, pids.start_ticks(sleeper.pid), "proxy-1.log"),
                Member(
                    "forwarder", "forwarder", forwarder.pid, pids.start_ticks(forwarder.pid), "forwarder.log"
                ),
            ),
        )


def list_modes(fleet: FleetRecord) -> list[str]:
    modes_by_name = faults.read_forward_modes(fleet)
    return [modes_by_name[f"proxy-1/{part}"] for part in _PARTS]


def test_freeze_stops_the_process_and_thaw_resumes_it(fleet: FleetRecord) -> None:
    """The process gets SIGSTOP and SIGCONT."""
    faults.freeze(fleet, "proxy-1")
    eventually_sync(lambda: fleet.find_member("proxy-1").state is ProcessState.FROZEN)
    faults.resume(fleet, "proxy-1")
    eventually_sync(lambda: fleet.find_member("proxy-1").state is ProcessState.RUNNING)


def test_cut_backend_affects_the_backend_forward_only(fleet: FleetRecord) -> None:
    """The backend forward is cut or held, and restored."""
    faults.cut_backend(fleet, "proxy-1")
    assert list_modes(fleet) == ["pass", "pass", "pass", "cut"]
    faults.cut_backend(fleet, "proxy-1", ForwardMode.HOLD)
    assert list_modes(fleet) == ["pass", "pass", "pass", "hold"]
    faults.restore_backend(fleet, "proxy-1")
    assert list_modes(fleet) == ["pass", "pass", "pass", "pass"]


def test_blackhole_holds_all_forwards_with_or_without_backend(fleet: FleetRecord) -> None:
    """After the end of the blackhole all forwards pass."""
    faults.blackhole(fleet, "proxy-1", backend=False)
    assert list_modes(fleet) == ["hold", "hold", "hold", "pass"]
    faults.blackhole(fleet, "proxy-1")
    assert list_modes(fleet) == ["hold", "hold", "hold", "hold"]
    faults.unblackhole(fleet, "proxy-1")
    assert list_modes(fleet) == ["pass", "pass", "pass", "pass"]


def test_fault_on_unknown_name_lists_the_processes(fleet: FleetRecord) -> None:
    """The operator can correct a typing mistake at once."""
    with pytest.raises(UnknownNameError, match="its processes: proxy-1, forwarder"):
        faults.freeze(fleet, "proxy-9")


def test_impossible_fault_is_explained(fleet: FleetRecord) -> None:
    """The process has no forward, the fleet has no forwarder, the forwarder does not respond, or the token is wrong."""
    with pytest.raises(FaultError, match="not an auth or a proxy"):
        faults.cut_backend(fleet, "forwarder")
    with pytest.raises(FaultError, match="--no-forwarder"):
        faults.blackhole(replace(fleet, control=""), "proxy-1")
    assert faults.read_forward_modes(replace(fleet, control="")) == {}
    with pytest.raises(FaultError, match="does not respond"):
        faults.blackhole(replace(fleet, control="127.0.0.1:9"), "proxy-1")
    with pytest.raises(FaultError, match="bearer token"):
        faults.blackhole(replace(fleet, token="other"), "proxy-1")


def test_restart_of_running_process_is_refused(fleet: FleetRecord, tmp_path: Path) -> None:
    """Two processes would have the same name."""
    with pytest.raises(FaultError, match="is running"):
        faults.restart(fleet, "proxy-1", tmp_path)


def test_restart_checks_all_names_before_it_starts_one(fleet: FleetRecord, tmp_path: Path) -> None:
    """If the second name is refused, no restart is requested for the first."""
    ended_process = subprocess.Popen(["true"])
    ended_process.wait()
    dead_member = replace(fleet.find_member("proxy-1"), name="proxy-2", pid=ended_process.pid, born=0.0)
    record.folder_of(tmp_path, "default").mkdir(parents=True)
    record.save(tmp_path, replace(fleet, members=(*fleet.members, dead_member)))

    invocation = CliRunner().invoke(restart, ["--home", str(tmp_path), "proxy-2", "proxy-1"])

    assert invocation.exit_code == 2
    assert "nothing was changed: proxy-1 is running" in invocation.output
    assert not faults.restart_request_path(record.folder_of(tmp_path, "default"), "proxy-2").exists()


def test_resume_checks_all_names_before_it_resumes_one(fleet: FleetRecord, tmp_path: Path) -> None:
    """If one process is dead, the others stay frozen, and the error says so."""
    ended_process = subprocess.Popen(["true"])
    ended_process.wait()
    dead_member = replace(fleet.find_member("proxy-1"), name="proxy-2", pid=ended_process.pid, born=0)
    record.folder_of(tmp_path, "default").mkdir(parents=True)
    record.save(tmp_path, replace(fleet, members=(*fleet.members, dead_member)))
    faults.freeze(fleet, "proxy-1")

    invocation = CliRunner().invoke(main, ["fleet", "resume", "--home", str(tmp_path), "proxy-1", "proxy-2"])

    assert invocation.exit_code == 2
    assert "nothing was changed: proxy-2 (pid " in invocation.stderr
    assert fleet.find_member("proxy-1").state is ProcessState.FROZEN
    faults.resume(fleet, "proxy-1")


def test_down_of_a_fleet_that_does_not_run_gives_no_command_to_start_it(tmp_path: Path) -> None:
    """Who stops a fleet does not want another one."""
    invocation = CliRunner().invoke(main, ["fleet", "down", "--home", str(tmp_path), "--cluster", "lab"])
    assert invocation.exit_code == 2
    assert f"fleet 'lab' is not running in {tmp_path}: there is nothing to stop" in invocation.stderr
    assert "fleet up" not in invocation.stderr


def test_faults_on_killed_process_are_refused(fleet: FleetRecord) -> None:
    """After SIGKILL the process cannot be frozen, even if its pid is used again."""
    faults.kill(fleet, "proxy-1")
    eventually_sync(lambda: fleet.find_member("proxy-1").state is ProcessState.DEAD)
    with pytest.raises(FaultError, match="refloat fleet restart proxy-1"):
        faults.freeze(fleet, "proxy-1")
